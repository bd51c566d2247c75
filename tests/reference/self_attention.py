"""Self-attention routing, one sample after another: [mazzia2021], all pairs of children."""

import math

from reference.numbers import samples, shaped, softmax
from reference.squash import squash as g


def self_attention_routing(votes, *, bias=None, squash="exp"):
    """Parents [*b, j, d] and the couplings [*b, i, j]."""
    *lead, n_in, n_out, size = votes.shape
    bias = votes.new_zeros(n_in, n_out) if bias is None else bias
    parents, couplings = [], []
    for u_hat, added in zip(samples(votes, 3, lead), samples(bias, 2, lead), strict=True):
        c = []
        for i in range(n_in):
            agreement = [
                sum(
                    u_hat[i][j][k] * u_hat[other][j][k]
                    for other in range(n_in)
                    for k in range(size)
                )
                for j in range(n_out)
            ]
            shares = softmax([x / math.sqrt(size) for x in agreement])
            c.append([x + added[i][j] for j, x in enumerate(shares)])
        for j in range(n_out):
            s = [sum(c[i][j] * u_hat[i][j][k] for i in range(n_in)) for k in range(size)]
            parents.append(g(s, squash))
        couplings.append(c)
    return (
        shaped(parents, votes, *lead, n_out, size),
        shaped(couplings, votes, *lead, n_in, n_out),
    )
