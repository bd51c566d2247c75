"""Self-attention routing, one sample after another: [mazzia2021], all pairs of children."""

import math

import torch

from reference.squash import scalars
from reference.squash import squash as g


def self_attention_routing(votes, *, bias=None, squash="exp"):
    """Parents [*b, j, d] and the couplings [*b, i, j]."""
    *lead, n_in, n_out, size = votes.shape
    biases = votes.new_zeros(n_in, n_out) if bias is None else bias
    biases = biases.expand(*lead, n_in, n_out).reshape(-1, n_in, n_out)
    parents, couplings = [], []
    samples = zip(votes.reshape(-1, n_in, n_out, size), biases, strict=True)
    for sample, sample_bias in samples:
        u_hat, added = scalars(sample), scalars(sample_bias)
        c = []
        for i in range(n_in):
            exponentials = []
            for j in range(n_out):
                agreement = 0.0
                for other in range(n_in):
                    for k in range(size):
                        agreement = agreement + u_hat[i][j][k] * u_hat[other][j][k]
                exponentials.append(torch.exp(agreement / math.sqrt(size)))
            total = 0.0
            for x in exponentials:
                total = total + x
            c.append([x / total + added[i][j] for j, x in enumerate(exponentials)])
        poses = []
        for j in range(n_out):
            s = []
            for k in range(size):
                total = 0.0
                for i in range(n_in):
                    total = total + c[i][j] * u_hat[i][j][k]
                s.append(total)
            poses.append(torch.stack(g(s, squash)))
        parents.append(torch.stack(poses))
        couplings.append(torch.stack([torch.stack(row) for row in c]))
    return (
        torch.stack(parents).reshape(*lead, n_out, size),
        torch.stack(couplings).reshape(*lead, n_in, n_out),
    )
