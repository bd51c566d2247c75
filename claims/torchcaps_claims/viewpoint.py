"""What moved images show: activations that stay, parse trees that do not, compact poses.

[mitterreiter2023] §4.2, Figs. 4 and 5; [gu2021] §3.3

The first paper prints no strengths. Ours begin with those of affNIST and go on to where a digit is
hardly one; a statement about trees looks at a copy turned by 5° and moved by one pixel. A seeded
sample of at most 2,000 images is looked at, with the same share of every class.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.analysis import (
    MeasureCompactness,
    MeasureInvariance,
    MeasureTreeDistance,
    measure,
    tree_distance,
    tree_size,
)
from torchcaps.data import Images, sample_of
from torchcaps.tasks.changes import (
    Change,
    compactness_factors,
    rotation,
    scaling,
    shear,
    translation,
)
from torchcaps.types import Output, Trace
from torchcaps_claims.ranks import spearman

Network = Callable[[Tensor], Output]

SAMPLE, BATCH = 2_000, 100
# A distance of trees that is none.
ROUNDING = 1e-6


class Strength(NamedTuple):
    """One change, and how strong it is among those of its kind."""

    kind: str
    name: str
    amount: float
    change: Change


STRENGTHS = (
    *(
        Strength("rotation", f"rotation {x}°", x, rotation(x))
        for x in (5, 10, 20, 30, 60, 90, 120, 150, 180)
    ),
    *(Strength("translation", f"translation {x} px", x, translation(x)) for x in (1, 2, 4, 6, 8)),
    # Smaller by a factor is as strong as larger by it.
    *(
        Strength("scale", f"scale {x}", round(abs(math.log(x)), 12), scaling(x))
        for x in (0.5, 0.65, 0.8, 0.9, 1.1, 1.25, 1.5)
    ),
    *(Strength("shear", f"shear {x}°", x, shear(x)) for x in (5, 10, 20, 30, 45)),
)


def invariance_of(network: Network, images: Images) -> dict[str, float]:
    """The cosine and Pearson's correlation of lengths under each change, by layer from below; how
    the cosine goes with the strength of a change, by Spearman; and the mean of all cosines."""
    changes = {each.name: each.change for each in STRENGTHS}
    (found,) = measure(network, _batches(images), [MeasureInvariance(network, changes)])
    layers = list(dict.fromkeys(row.name for row in found.layers))
    values: dict[str, float] = {
        f"{name}.{row.change}.{layers.index(row.name) + 1}": value
        for row in found.layers
        for name, value in (("corr", row.corr), ("pearson", row.pearson))
        if value is not None
    }
    cosines = [value for name, value in values.items() if name.startswith("corr.")]
    if cosines:
        values["activation_correlation"] = sum(cosines) / len(cosines)
    for kind in dict.fromkeys(each.kind for each in STRENGTHS):
        for layer in range(1, len(layers) + 1):
            points = [
                (each.amount, values[name])
                for each in STRENGTHS
                if each.kind == kind and (name := f"corr.{each.name}.{layer}") in values
            ]
            if len(points) > 1:
                values[f"spearman.{kind}.{layer}"] = spearman(*zip(*points, strict=True))
    return values


def compactness_of(network: Network, images: Images) -> dict[str, float]:
    """The score of each factor along which some pose varies, and their mean."""
    measurement = MeasureCompactness(network, compactness_factors())
    (found,) = measure(network, _batches(images), [measurement])
    each = {row.factor: row.score for row in found.factors if row.score is not None}
    scores = {f"compactness.{factor}": score for factor, score in each.items()}
    return {"compactness": sum(each.values()) / len(each), **scores} if each else {}


def trees_of(network: Network, images: Images) -> dict[str, float]:
    """Distances of the trees of images of different and of the same class; how far the tree of a
    copy lies, turned by 5° and moved by a pixel; and the share of images whose copy lies as far as
    images of the same class do, in the median."""
    index = sample_of(images, SAMPLE)
    (found,) = measure(network, _batches(images), [MeasureTreeDistance(sample=SAMPLE)])
    values = {}
    for kind in ("same", "different"):
        value = getattr(found.layers[-1], kind)
        if value is not None:
            values[f"distance.{kind}"] = value
    if "distance.different" in values:
        values["parse_tree_distance"] = values["distance.different"]
    labels = images.batch(index).labels
    turned, moved = rotation(5), translation(1)
    to_copy, to_class = [], []
    # Images of one class lie beside each other; the first of a class has none before it.
    by_class = index[labels.argsort(stable=True)] if labels.ndim == 1 else index[:0]
    # The first of all is compared with itself, and left out.
    before, its_label = images.batch(by_class[:1]).pixels, torch.tensor([-1])
    for part in by_class.split(BATCH):
        batch = images.batch(part)
        trace = _traced(network, batch.pixels)
        to_copy.append(_mean(trace, _traced(network, moved(turned(batch.pixels)))))
        ones_before = torch.cat([before, batch.pixels[:-1]])
        is_alike = batch.labels == torch.cat([its_label.to(batch.labels), batch.labels[:-1]])
        to_class.append(_mean(trace, _traced(network, ones_before))[is_alike])
        before, its_label = batch.pixels[-1:], batch.labels[-1:]
    same = torch.cat(to_class) if to_class else torch.empty(0)
    if len(same):
        copies = torch.cat(to_copy)
        values["distance.copy"] = float(copies.mean())
        # Where trees never change a copy has the same tree, though no other is nearer.
        as_far = (copies >= same.median()) & (copies > ROUNDING)
        values["share_as_far"] = float(as_far.double().mean())
    return values


def tree_size_of(network: Network, images: Images) -> dict[str, float]:
    """How many capsules have a child in the tree of the predicted class, mean over all images."""
    total = 0
    for part in torch.arange(len(images)).split(BATCH):
        with torch.no_grad():
            out = network(images.batch(part).pixels)
        n_classes = out.scores.shape[1]
        total += int(tree_size(out.trace, out.scores.argmax(-1), n_classes=n_classes).sum())
    return {"tree_size": total / len(images)}


def _batches(images: Images) -> Iterator[tuple[Tensor, Tensor]]:
    for part in sample_of(images, SAMPLE).split(BATCH):
        batch = images.batch(part)
        yield batch.pixels, batch.labels


@torch.no_grad()
def _traced(network: Network, pixels: Tensor) -> Trace:
    return network(pixels).trace


def _mean(first: Trace, second: Trace) -> Tensor:
    """Average the distance over layers: a number an image."""
    return torch.stack([*tree_distance(first, second).values()]).mean(0)
