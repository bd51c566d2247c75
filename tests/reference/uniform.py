"""Uniform routing, one sample after another: [mitterreiter2023] §4.3 (1/J), [gu2021] §3.1 (1/I)."""

import torch

from reference.squash import squash as g


def uniform_routing(votes, *, normalise="softmax", bias=None, squash="hinton"):
    """Parents [*b, j, d] and the couplings [*b, i, j]."""
    *lead, n_in, n_out, size = votes.shape
    share = {"softmax": 1 / n_out, "mean": 1 / n_in}[normalise]
    biases = votes.new_zeros(n_out, size) if bias is None else bias
    biases = biases.expand(*lead, n_out, size).reshape(-1, n_out, size)
    parents = []
    samples = zip(votes.reshape(-1, n_in, n_out, size), biases, strict=True)
    for sample, sample_bias in samples:
        for j in range(n_out):
            s = []
            for k in range(size):
                total = sample_bias[j, k]
                for i in range(n_in):
                    total = total + share * sample[i, j, k]
                s.append(total)
            parents.append(torch.stack(g(s, squash)))
    coupling = votes.new_full((*lead, n_in, n_out), share)
    if not parents:
        return votes.new_zeros(*lead, n_out, size), coupling
    return torch.stack(parents).reshape(*lead, n_out, size), coupling
