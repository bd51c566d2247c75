"""Pairs of images in a sample: at random, with the same labels, with different ones."""

from collections import defaultdict
from itertools import pairwise

import torch
from torch import Tensor

from torchcaps.analysis.measure import Labelled


def labels_or_none(batch: Labelled) -> Tensor:
    """Return labels [b] or [b, m]; [b, 0] where there are none."""
    return torch.zeros(len(batch.pixels), 0) if batch.labels is None else batch.labels


def names_of(labels: Tensor) -> list[int]:
    """Number the images, equally where the sets of labels are equal; of labels [k] or [k, m]."""
    sets = [tuple(sorted(set(row.view(-1).tolist()))) for row in labels]
    number = {labels: index for index, labels in enumerate(dict.fromkeys(sets))}
    return [number[each] for each in sets]


def neighbours(labels: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Give rows of the first and of the second image of each pair: "random" neighbours, neighbours
    of the "same" labels, and neighbours with "different" ones. A sample is in random order."""
    names = names_of(labels)
    same, different = [], []
    if labels.numel():
        groups = defaultdict(list)
        for index, name in enumerate(names):
            groups[name].append(index)
        same = [pair for each in groups.values() for pair in pairwise(each)]
        different = [(a, b) for a, b in pairwise(range(len(names))) if names[a] != names[b]]
    return {
        "random": _columns([*pairwise(range(len(names)))]),
        "same": _columns(same),
        "different": _columns(different),
    }


def _columns(pairs: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    first, second = torch.tensor(pairs, dtype=torch.long).view(-1, 2).T
    return first, second
