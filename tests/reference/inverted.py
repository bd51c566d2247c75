"""Inverted dot-product attention routing, one number after another: [tsai2020] Procedure 1.

Agreement is the dot product of a vote with the parent of the iteration before; parents start at 0.
LayerNorm has the guard 1e-5. With activations a variance of the weighted votes, floored at 1e-4,
prices a parent; a parent without mass has variance 0.
"""

import torch

from reference.numbers import samples, shaped, softmax


def inverted_routing(
    votes,
    activation=None,
    *,
    iterations=2,
    norm=None,
    scale=1.0,
    beta_a=None,
    beta_u=None,
    lambda_=0.01,
    start=None,
):
    """Parents [*b, j, d], the couplings [*b, i, j] of every iteration, and the activations [*b, j]
    of the parents, which are None without child activations."""
    *lead, n_in, n_out, size = votes.shape
    starts = votes.new_zeros(n_out, size) if start is None else start
    children = votes.new_ones(n_in) if activation is None else activation
    betas = None
    if activation is not None:
        betas = [beta.expand(n_out).unbind() for beta in (beta_a, beta_u)]
    if norm is not None:
        norm = [x.expand(size).unbind() for x in norm]
    poses, activations, couplings = [], [], [[] for _ in range(iterations)]
    given = (samples(votes, 3, lead), samples(starts, 2, lead), samples(children, 1, lead))
    for v, p, a in zip(*given, strict=True):
        for t in range(iterations):
            r = [_shares([scale * _dot(p[j], v[i][j]) for j in range(n_out)]) for i in range(n_in)]
            couplings[t].append(r)
            w = [[r[i][j] * a[i] for j in range(n_out)] for i in range(n_in)]
            p = []
            for j in range(n_out):
                pose = [sum(w[i][j] * v[i][j][h] for i in range(n_in)) for h in range(size)]
                p.append(pose if norm is None else _layer_norm(pose, *norm))
        poses.append(p)
        if betas is not None:
            for j in range(n_out):
                weights, voted = [row[j] for row in w], [row[j] for row in v]
                active = _activation(weights, voted, betas[0][j], betas[1][j], lambda_)
                activations.append(active)
    return (
        shaped(poses, votes, *lead, n_out, size),
        [shaped(r, votes, *lead, n_in, n_out) for r in couplings],
        None if betas is None else shaped(activations, votes, *lead, n_out),
    )


def _dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def _shares(logits):
    largest = max(logits).detach()
    return softmax([x - largest for x in logits])


def _layer_norm(pose, weight, bias):
    mean = sum(pose) / len(pose)
    variance = sum((x - mean) ** 2 for x in pose) / len(pose)
    root = torch.sqrt(variance + 1e-5)
    return [(x - mean) / root * g + b for x, g, b in zip(pose, weight, bias, strict=True)]


def _activation(weights, votes, beta_a, beta_u, lambda_):
    m = sum(weights)
    cost = 0.0
    for h in range(len(votes[0])):
        variance = torch.zeros_like(m)
        if m != 0:
            mean = sum(w * vote[h] for w, vote in zip(weights, votes, strict=True)) / m
            spread = sum(w * (vote[h] - mean) ** 2 for w, vote in zip(weights, votes, strict=True))
            variance = spread / m
        cost = cost + (beta_u + 0.5 * torch.log(variance + 1e-4)) * m
    return 1 / (1 + torch.exp(-lambda_ * (beta_a - cost)))
