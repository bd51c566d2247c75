"""Scaled-distance-agreement routing of γ-capsules, [peer2018]: all samples go through an iteration
together, because their distances may have one mean.

Three readings of where gradients stop: nowhere; at the rescaled votes of all but the last
iteration; at everything before the last iteration.
"""

import math

import torch

from reference.numbers import constant, samples, scalars, shaped, softmax
from reference.squash import EPSILON
from reference.squash import squash as g


def distance_routing(
    votes,
    activation,
    *,
    iterations=3,
    scale="sample",
    bias=None,
    p=0.9,
    squash="hinton",
    detach="none",
):
    """Parents [*b, j, d], the couplings [*b, i, j] of every iteration, as a list, and the mean
    distances: [*b, iterations − 1], [iterations − 1] or None."""
    *lead, n_in, n_out, size = votes.shape
    biases = samples(votes.new_zeros(n_out, size) if bias is None else bias, 2, lead)
    u_hat = [
        [[_shortened(vote, length) for vote in row] for row, length in zip(one, a, strict=True)]
        for one, a in zip(samples(votes, 3, lead), samples(activation, 1, lead), strict=True)
    ]
    batch = range(len(u_hat))
    b = scalars(votes.new_zeros(len(u_hat), n_in, n_out))
    couplings, means = [], []
    for t in range(1, iterations + 1):
        seen, added = u_hat, biases
        if detach != "none" and t < iterations:
            seen = constant(u_hat)
        if detach == "iterations" and t < iterations:
            added = constant(biases)
        c = [[softmax(row) for row in b[n]] for n in batch]
        v = [_parents(c[n], seen[n], added[n], squash) for n in batch]
        couplings.append(shaped(c, votes, *lead, n_in, n_out))
        if t == iterations:
            break
        d = [
            [[_distance(v[n][j], seen[n][i][j]) for j in range(n_out)] for i in range(n_in)]
            for n in batch
        ]
        sums = [sum(x for row in d[n] for x in row) for n in batch]
        if torch.is_tensor(scale):
            stored = scale.detach() if detach == "iterations" else scale
            used = [stored[t - 1] for _ in batch]
        elif scale == "batch":
            used = [sum(sums) / (len(sums) * n_in * n_out) for _ in batch]
        else:
            used = [x / (n_in * n_out) for x in sums]
        means.append(shaped(used, votes, *lead) if scale == "sample" else used[0])
        if n_out == 1:
            continue
        for n in batch:
            d_o = used[n]
            d_p = d_o / 2
            coefficient = (math.log(p * (n_out - 1)) - math.log(1 - p)) / (d_p - d_o)
            b[n] = [[coefficient * x for x in row] for row in d[n]]
    return (
        shaped(v, votes, *lead, n_out, size),
        couplings,
        torch.stack(means, -1) if means else None,
    )


def _shortened(vote, length):
    square = sum(x * x for x in vote)
    if square <= length * length or square <= 1e-18**2:
        return vote
    norm = torch.sqrt(square)
    return [length * x / norm for x in vote]


def _parents(c, u_hat, bias, kind):
    poses = []
    for j, added in enumerate(bias):
        s = [
            sum((c[i][j] * u_hat[i][j][k] for i in range(len(u_hat))), added[k])
            for k in range(len(added))
        ]
        poses.append(g(s, kind))
    return poses


def _distance(pose, vote):
    square = sum((x - y) * (x - y) for x, y in zip(pose, vote, strict=True))
    return torch.sqrt(square + EPSILON)
