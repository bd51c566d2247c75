"""Losses, one number after another: [mitterreiter2023] Eq. 3, [hinton2018], [gu2021] §3.

`present` holds, for each sample, the set of classes that are there; `true` the one class.
"""

import torch


def mean(each):
    return sum(each) / len(each)


def summed(scores, present, cost):
    """The mean over samples of what all classes cost: cost(score, whether the class is there)."""
    return mean(
        [
            sum(cost(score, k in classes) for k, score in enumerate(row.unbind()))
            for row, classes in zip(scores, present, strict=True)
        ]
    )


def margin_loss(lengths, present, *, m_plus=0.9, m_minus=0.1, lambda_=0.5, reduction="mean"):
    def cost(length, there):
        hinge = (m_plus - length if there else length - m_minus).clamp(min=0)
        return (1.0 if there else lambda_) * hinge * hinge

    loss = summed(lengths, present, cost)
    return loss / (2 * lengths.shape[-1]) if reduction == "official" else loss


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
    return focal_loss(scores, [{int(t)} for t in true], scores_are="logits", gamma=0)


def binary_cross_entropy_loss(scores, present, *, scores_are):
    return focal_loss(scores, present, scores_are=scores_are, gamma=0)


def focal_loss(scores, present, *, scores_are, gamma):
    """With γ = 0 it is the cross-entropy."""
    if scores_are == "logits":
        each = []
        for row, (t,) in zip(scores, present, strict=True):
            p = torch.exp(row[t]) / sum(torch.exp(row).unbind())
            each.append(-((1 - p) ** gamma) * torch.log(p))
        return mean(each)

    def cost(score, there):
        p = score if scores_are == "lengths" else 1 / (1 + torch.exp(-score))
        p = p if there else 1 - p
        return -((1 - p) ** gamma) * torch.log(p)

    return summed(scores, present, cost)


def reconstruction_loss(reconstruction, image):
    pixels = zip(reconstruction.reshape(-1), image.reshape(-1), strict=True)
    return sum((a - b) * (a - b) for a, b in pixels) / len(image)
