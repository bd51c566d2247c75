"""Votes, one product after another: [mitterreiter2023] Eq. 2, [peer2022] §3.3 and §4.2."""

import math

import torch


def materialise(pose, weight, *, sharing="none", kind="vector", bias=None):
    """Votes [*b, i, j, d] of poses [*b, i, d]; with sharing "type" child i has type i % types."""
    *lead, n_in, d_in = pose.shape
    n_out = weight.shape[-3]
    samples = []
    for sample in pose.reshape(-1, n_in, d_in):
        votes = []
        for i in range(n_in):
            w = weight if sharing == "all" else weight[i if sharing == "none" else i % len(weight)]
            votes += [_vote(sample[i], w[j], kind, bias, j) for j in range(n_out)]
        samples.append(torch.stack(votes).reshape(n_in, n_out, -1))
    return torch.stack(samples).reshape(*lead, n_in, n_out, -1)


def _vote(u, w, kind, bias, j):
    numbers = []
    if kind == "vector":
        for row in range(w.shape[0]):
            total = 0.0
            for k in range(w.shape[1]):
                total = total + w[row, k] * u[k]
            numbers.append(total)
    else:
        side = math.isqrt(len(u))
        for row in range(side):
            for column in range(side):
                total = 0.0
                for k in range(side):
                    total = total + u[row * side + k] * w[k, column]
                numbers.append(total)
    vote = torch.stack(numbers)
    return vote if bias is None else vote + bias[j]
