"""Votes, one product after another: [mitterreiter2023] Eq. 2, [peer2022] §3.3 and §4.2."""

import math

from reference.numbers import shaped


def materialise(pose, weight, *, sharing="none", kind="vector", bias=None):
    """Votes [*b, i, j, d] of poses [*b, i, d]; with sharing "type" child i has type i % types."""
    *lead, n_in, d_in = pose.shape
    n_out, size = weight.shape[-3], d_in if kind == "matrix" else weight.shape[-2]
    votes = []
    for sample in pose.reshape(-1, n_in, d_in):
        for i in range(n_in):
            w = weight if sharing == "all" else weight[i if sharing == "none" else i % len(weight)]
            votes += [_vote(sample[i], w[j], kind) for j in range(n_out)]
    votes = shaped(votes, pose, *lead, n_in, n_out, size)
    return votes if bias is None else votes + bias


def _vote(u, w, kind):
    if kind == "vector":
        return [sum(w[row, k] * u[k] for k in range(len(u))) for row in range(len(w))]
    side = range(math.isqrt(len(u)))
    return [
        sum(u[row * len(side) + k] * w[k, column] for k in side) for row in side for column in side
    ]
