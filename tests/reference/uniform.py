"""Uniform routing, one sample after another: [mitterreiter2023] §4.3 (1/J), [gu2021] §3.1 (1/I)."""

from reference.numbers import samples, shaped
from reference.squash import squash as g


def uniform_routing(votes, *, normalise="softmax", bias=None, squash="hinton"):
    """Parents [*b, j, d] and the couplings [*b, i, j]."""
    *lead, n_in, n_out, size = votes.shape
    share = {"softmax": 1 / n_out, "mean": 1 / n_in}[normalise]
    bias = votes.new_zeros(n_out, size) if bias is None else bias
    parents = []
    for u_hat, added in zip(samples(votes, 3, lead), samples(bias, 2, lead), strict=True):
        for j in range(n_out):
            s = [
                sum((share * u_hat[i][j][k] for i in range(n_in)), added[j][k]) for k in range(size)
            ]
            parents.append(g(s, squash))
    coupling = votes.new_full((*lead, n_in, n_out), share)
    return shaped(parents, votes, *lead, n_out, size), coupling
