"""Scaled-distance-agreement routing of γ-capsules, [peer2018]: all samples go through an iteration
together, because their distances may have one mean.

Three readings of where gradients stop: nowhere; at the rescaled votes of all but the last
iteration; at everything before the last iteration.
"""

import math

import torch

from reference.squash import EPSILON, scalars
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
    lengths = activation.expand(*lead, n_in).reshape(-1, n_in)
    biases = votes.new_zeros(n_out, size) if bias is None else bias
    biases = scalars(biases.expand(*lead, n_out, size).reshape(-1, n_out, size))
    u_hat = scalars(votes.reshape(-1, n_in, n_out, size))
    batch = range(len(u_hat))
    u_hat = [
        [[_shortened(vote, lengths[n][i]) for vote in u_hat[n][i]] for i in range(n_in)]
        for n in batch
    ]
    b = [[[votes.new_zeros(()) for _ in range(n_out)] for _ in range(n_in)] for _ in batch]
    couplings, means = [], []
    for t in range(1, iterations + 1):
        seen, added = u_hat, biases
        if detach != "none" and t < iterations:
            seen = [[[[x.detach() for x in u] for u in row] for row in one] for one in u_hat]
        if detach == "iterations" and t < iterations:
            added = [[[x.detach() for x in row] for row in one] for one in biases]
        c = [[_softmax(row) for row in b[n]] for n in batch]
        v = [_parents(c[n], seen[n], added[n], squash) for n in batch]
        couplings.append(_stack(c).reshape(*lead, n_in, n_out))
        if t == iterations:
            break
        d = [
            [[_distance(v[n][j], seen[n][i][j]) for j in range(n_out)] for i in range(n_in)]
            for n in batch
        ]
        sums = []
        for n in batch:
            total = 0.0
            for row in d[n]:
                for x in row:
                    total = total + x
            sums.append(total)
        if torch.is_tensor(scale):
            stored = scale.detach() if detach == "iterations" else scale
            used = [stored[t - 1] for _ in batch]
        elif scale == "batch":
            total = 0.0
            for x in sums:
                total = total + x
            used = [total / (len(sums) * n_in * n_out) for _ in batch]
        else:
            used = [x / (n_in * n_out) for x in sums]
        means.append(torch.stack(used).reshape(lead) if scale == "sample" else used[0])
        if n_out == 1:
            continue
        for n in batch:
            d_o = used[n]
            d_p = d_o / 2
            coefficient = (math.log(p * (n_out - 1)) - math.log(1 - p)) / (d_p - d_o)
            b[n] = [[coefficient * x for x in row] for row in d[n]]
    return (
        _stack(v).reshape(*lead, n_out, size),
        couplings,
        torch.stack(means, -1) if means else None,
    )


def _stack(nested):
    return torch.stack([_stack(x) for x in nested]) if isinstance(nested, list) else nested


def _shortened(vote, length):
    square = 0.0
    for x in vote:
        square = square + x * x
    if square <= length * length or square <= 1e-18**2:
        return vote
    norm = torch.sqrt(square)
    return [length * x / norm for x in vote]


def _softmax(logits):
    exponentials = [torch.exp(x) for x in logits]
    total = 0.0
    for x in exponentials:
        total = total + x
    return [x / total for x in exponentials]


def _parents(c, u_hat, bias, kind):
    poses = []
    for j in range(len(bias)):
        s = []
        for k in range(len(bias[j])):
            total = bias[j][k]
            for i in range(len(u_hat)):
                total = total + c[i][j] * u_hat[i][j][k]
            s.append(total)
        poses.append(g(s, kind))
    return poses


def _distance(pose, vote):
    square = 0.0
    for x, y in zip(pose, vote, strict=True):
        square = square + (x - y) * (x - y)
    return torch.sqrt(square + EPSILON)
