"""Losses, one number after another: [mitterreiter2023] Eq. 3, [hinton2018], [gu2021] §3.

`present` holds, for each sample, the set of classes that are there; `true` the one class.
"""

import torch


def margin_loss(lengths, present, *, m_plus=0.9, m_minus=0.1, lambda_=0.5, reduction="sum"):
    total = 0.0
    for row, classes in zip(lengths, present, strict=True):
        for k, length in enumerate(row.unbind()):
            if k in classes:
                gap = m_plus - length
                weight = 1.0
            else:
                gap = length - m_minus
                weight = lambda_
            hinge = gap.clamp(min=0)
            total = total + weight * hinge * hinge
    if reduction == "official":
        return total / (2 * lengths.numel())
    return total / len(lengths)


def spread_loss(activations, true, *, margin):
    total = 0.0
    for row, there in zip(activations, true, strict=True):
        there = [there] if isinstance(there, int) else there
        for t in there:
            for i in range(len(row)):
                if i not in there:
                    hinge = (margin - (row[t] - row[i])).clamp(min=0)
                    total = total + hinge * hinge
    return total / len(activations)


def cross_entropy_loss(scores, true):
    total = 0.0
    for row, t in zip(scores, true, strict=True):
        everything = 0.0
        for score in row.unbind():
            everything = everything + torch.exp(score)
        total = total - torch.log(torch.exp(row[t]) / everything)
    return total / len(scores)


def binary_cross_entropy_loss(scores, present, *, scores_are):
    total = 0.0
    for row, classes in zip(scores, present, strict=True):
        for k, score in enumerate(row.unbind()):
            p = score if scores_are == "lengths" else 1 / (1 + torch.exp(-score))
            total = total - torch.log(p if k in classes else 1 - p)
    return total / len(scores)


def reconstruction_loss(reconstruction, image):
    total = 0.0
    for a, b in zip(reconstruction.reshape(-1), image.reshape(-1), strict=True):
        total = total + (a - b) * (a - b)
    return total / len(image)
