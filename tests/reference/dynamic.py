"""Dynamic routing, one sample after another: [mitterreiter2023] Alg. 1, [peer2022] Alg. 1 and §4.1.

Four readings of where gradients stop: nowhere; at the votes of all but the last iteration; at the
parents of all but the last; at the logits, always. odd_bias puts the bias on the side of s;
agreement is the factor on what a logit grows by.
"""

import torch

from reference.squash import scalars
from reference.squash import squash as g


def dynamic_routing(
    votes,
    *,
    iterations=3,
    bias=None,
    prior=None,
    odd_bias=False,
    leaky=False,
    squash="hinton",
    detach="none",
    agreement=1.0,
):
    """Parents [*b, j, d] and the couplings [*b, i, j] of every iteration, as a list."""
    *lead, n_in, n_out, size = votes.shape
    biases = votes.new_zeros(n_out, size) if bias is None else bias
    priors = votes.new_zeros(n_in, n_out) if prior is None else prior
    biases = biases.expand(*lead, n_out, size).reshape(-1, n_out, size)
    priors = priors.expand(*lead, n_in, n_out).reshape(-1, n_in, n_out)
    parents, couplings = [], [[] for _ in range(iterations)]
    samples = zip(votes.reshape(-1, n_in, n_out, size), biases, priors, strict=True)
    for sample, sample_bias, sample_prior in samples:
        poses, steps = _route(
            sample,
            iterations,
            sample_bias,
            sample_prior,
            odd_bias,
            leaky,
            squash,
            detach,
            agreement,
        )
        parents.append(poses)
        for t, c in enumerate(steps):
            couplings[t].append(c)
    if not parents:
        return votes.new_zeros(*lead, n_out, size), [
            votes.new_zeros(*lead, n_in, n_out)
        ] * iterations
    return (
        torch.stack(parents).reshape(*lead, n_out, size),
        [torch.stack(c).reshape(*lead, n_in, n_out) for c in couplings],
    )


def _route(votes, iterations, bias, prior, odd_bias, leaky, squash, detach, agreement):
    n_in, n_out, size = votes.shape
    u_hat, bias, b = scalars(votes), scalars(bias), scalars(prior)
    steps = []
    for t in range(1, iterations + 1):
        last = t == iterations
        seen = u_hat
        if detach == "votes" and not last:
            seen = [[[x.detach() for x in vote] for vote in row] for row in u_hat]
        if detach == "coupling":
            b = [[x.detach() for x in row] for row in b]
        c = [_softmax(row, leaky) for row in b]
        v = []
        for j in range(n_out):
            s = []
            for k in range(size):
                total = 0.0
                for i in range(n_in):
                    total = total + c[i][j] * seen[i][j][k]
                s.append(total)
            side = 1.0
            if odd_bias:
                along = sum((s[k] * bias[j][k]).detach().item() for k in range(size))
                side = (along > 0) - (along < 0)
            v.append(g([s[k] + side * bias[j][k] for k in range(size)], squash))
        steps.append(torch.stack([torch.stack(row) for row in c]))
        agreed = v
        if detach == "states":
            agreed = [[x.detach() for x in pose] for pose in v]
        for i in range(n_in):
            for j in range(n_out):
                for k in range(size):
                    b[i][j] = b[i][j] + agreement * seen[i][j][k] * agreed[j][k]
    return torch.stack([torch.stack(pose) for pose in v]), steps


def _softmax(logits, leaky):
    exponentials = [torch.exp(x) for x in logits]
    total = 1.0 if leaky else 0.0  # the parent "nobody" has logit 0, exp(0) = 1
    for x in exponentials:
        total = total + x
    return [x / total for x in exponentials]
