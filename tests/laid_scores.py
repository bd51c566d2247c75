"""Scores of three classes of unequal size, and the labels that they know something of."""

import torch

from torchcaps.types import Output


def drawn(seed, sizes=(8, 60, 30), *, are="logits", levels=None, better=1.0):
    """Scores that know something of the labels; with `levels` full of ties."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.full((size,), k) for k, size in enumerate(sizes)])
    labels = labels[torch.randperm(len(labels), generator=generator)]
    scores = torch.randn(len(labels), len(sizes), generator=generator)
    scores += better * torch.nn.functional.one_hot(labels, len(sizes))
    if are == "lengths":
        scores = scores.sigmoid()
    if levels is not None:
        scores = (scores * levels).round() / levels
    return Output(scores, are), labels
