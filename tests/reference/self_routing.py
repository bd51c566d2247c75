"""Self-routing, one sample after another, with loops: [hahn2019]."""

import torch

from reference.squash import scalars


def self_routing(votes, activation, poses, weight, bias):
    """Parents [*b, j, d], the couplings [*b, i, j], and the activations of parents [*b, j]."""
    *lead, n_in, n_out, size = votes.shape
    parents, couplings, activations = [], [], []
    samples = zip(
        votes.reshape(-1, n_in, n_out, size),
        activation.reshape(-1, n_in),
        poses.reshape(-1, n_in, poses.shape[-1]),
        strict=True,
    )
    w, b = scalars(weight), scalars(bias)
    for sample in samples:
        u_hat, a, p = (scalars(each) for each in sample)
        c = []
        for i in range(n_in):
            exponentials = []
            for j in range(n_out):
                logit = b[i][j]
                for k in range(len(p[i])):
                    logit = logit + w[i][j][k] * p[i][k]
                exponentials.append(torch.exp(logit))
            total = 0.0
            for x in exponentials:
                total = total + x
            c.append([x / total for x in exponentials])
        everybody = 0.0
        for i in range(n_in):
            everybody = everybody + a[i]
        pose, sure = [], []
        for j in range(n_out):
            mass = 0.0
            for i in range(n_in):
                mass = mass + a[i] * c[i][j]
            mean = []
            for k in range(size):
                total = 0.0
                for i in range(n_in):
                    total = total + a[i] * c[i][j] * u_hat[i][j][k]
                mean.append(total / mass)
            pose.append(torch.stack(mean))
            sure.append(mass / everybody)
        parents.append(torch.stack(pose))
        couplings.append(torch.stack([torch.stack(row) for row in c]))
        activations.append(torch.stack(sure))
    return (
        torch.stack(parents).reshape(*lead, n_out, size),
        torch.stack(couplings).reshape(*lead, n_in, n_out),
        torch.stack(activations).reshape(*lead, n_out),
    )
