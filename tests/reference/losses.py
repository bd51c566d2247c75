"""Losses, one number after another: [mitterreiter2023] Eq. 3, [hinton2018], [gu2021] §3.

`present` holds, for each sample, the set of classes that are there; `true` the one class.
"""

import torch


def mean(each):
    return sum(each) / len(each)


def margin_loss(lengths, present, *, m_plus=0.9, m_minus=0.1, lambda_=0.5, reduction="mean"):
    each = []
    for row, classes in zip(lengths, present, strict=True):
        total = 0.0
        for k, length in enumerate(row.unbind()):
            if k in classes:
                gap = m_plus - length
                part = 1.0
            else:
                gap = length - m_minus
                part = lambda_
            hinge = gap.clamp(min=0)
            total = total + part * hinge * hinge
        each.append(total / (2 * len(row)) if reduction == "official" else total)
    return mean(each)


def spread_loss(activations, true, *, margin):
    each = []
    for row, there in zip(activations, true, strict=True):
        there = [there] if isinstance(there, int) else there
        total = 0.0
        for t in there:
            for i in range(len(row)):
                if i not in there:
                    hinge = (margin - (row[t] - row[i])).clamp(min=0)
                    total = total + hinge * hinge
        each.append(total)
    return mean(each)


def cross_entropy_loss(scores, true):
    each = []
    for row, t in zip(scores, true, strict=True):
        everything = 0.0
        for score in row.unbind():
            everything = everything + torch.exp(score)
        each.append(-torch.log(torch.exp(row[t]) / everything))
    return mean(each)


def binary_cross_entropy_loss(scores, present, *, scores_are):
    each = []
    for row, classes in zip(scores, present, strict=True):
        total = 0.0
        for k, score in enumerate(row.unbind()):
            p = score if scores_are == "lengths" else 1 / (1 + torch.exp(-score))
            total = total - torch.log(p if k in classes else 1 - p)
        each.append(total)
    return mean(each)


def focal_loss(scores, present, *, scores_are, gamma):
    each = []
    for row, classes in zip(scores, present, strict=True):
        total = 0.0
        if scores_are == "logits":
            (t,) = classes
            p = torch.exp(row[t]) / torch.exp(row).sum()
            total = -((1 - p) ** gamma) * torch.log(p)
        else:
            for k, score in enumerate(row.unbind()):
                p = score if scores_are == "lengths" else 1 / (1 + torch.exp(-score))
                p = p if k in classes else 1 - p
                total = total - (1 - p) ** gamma * torch.log(p)
        each.append(total)
    return mean(each)


def reconstruction_loss(reconstruction, image):
    total = 0.0
    for a, b in zip(reconstruction.reshape(-1), image.reshape(-1), strict=True):
        total = total + (a - b) * (a - b)
    return total / len(image)
