"""The mean of a trace over images, so that a class or a test set has one tree [renzulli2025]
Figs. 15, 16, 18 and 19.

Lengths, poses and couplings are each averaged over the images. The result is a trace, and what
reads the trace of one image (`backtracked`, `viz.draw_backtracked`) reads it too.

Departures: none.
Ambiguities: the paper does not say which images are those of a class. Here they are those with the
class as their answer, because backtracking begins at the answer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree

from torchcaps.analysis.measure import Answer
from torchcaps.analysis.trace import (
    check_classes,
    check_trace,
    finite_coupling,
    image_lengths,
    last_coupling,
    lengths,
    predicted_classes,
)
from torchcaps.errors import TorchcapsError
from torchcaps.types import Capsules, LayerTrace, Routed, Step, Trace


def mean_trace(outs: Answer | Iterable[Answer], *, classes: Sequence[int] | None = None) -> Trace:
    """Make a trace of one image, the mean over all images; or of one image a class.

    Arguments:
        outs: what the network returned for a batch, or for each of many. A generator is gone
            through batch by batch, without gradients, and one batch is held at a time.
        classes: image k of the result is the mean over the images whose highest score is that of
            classes[k]; left out, it is the mean over all images.

    >>> mean = mean_trace((model(x, keep="last") for x in batches), classes=range(10))
    >>> backtracked(mean, 3, index=3)
    """
    if classes is not None:
        check_classes(classes)
    total: list[_Sums] = []
    trace: Trace = ()
    images, counts = 0, torch.zeros(1 if classes is None else len(classes), dtype=torch.float64)
    with torch.no_grad():
        for out in outs if isinstance(outs, Iterable) else [outs]:
            chosen = _chosen(out, classes)
            # The sums of all batches, and no batch, are kept.
            trace, sums = out.trace, [_summed(layer, chosen) for layer in out.trace]
            total = _added(total, sums) if total else sums
            images, counts = images + len(chosen), counts + chosen.sum(0)
    if not images:
        raise TorchcapsError(
            "there are no images to take a mean over; an iterator can be gone through once."
        )
    if missing := [str(each) for each, n in zip(classes or (), counts, strict=False) if not n]:
        raise TorchcapsError(
            f"each class needs an image with this answer, but none of the {images} images has the "
            f"answer {' or '.join(missing)}; leave it out of `classes`, or give more images."
        )
    return tuple(_mean(layer, each, counts) for layer, each in zip(trace, total, strict=True))


class _Sums(NamedTuple):
    """Sums of one layer, over the images of each class, in float64."""

    children: Capsules  # [m, i, d], [m, i]
    coupling: Tensor  # [m, i, j], or through windows [m, p, i, j]
    parents: Capsules


def _chosen(out: Answer, classes: Sequence[int] | None) -> Tensor:
    """Say which images [k] belong to which class [m]: ones and zeros [k, m]."""
    if not (hasattr(out, "scores") and hasattr(out, "trace")):
        raise TorchcapsError(
            f"a mean is taken over what a network returned for each batch, with `scores` and a "
            f'`trace`, but one came as {type(out).__name__}; give model(images, keep="last") '
            f"itself."
        )
    check_trace(out.trace)
    images, scored = len(out.trace[0].children.pose), len(out.scores)
    if images != scored:
        raise TorchcapsError(
            f"scores and trace must be of the same images, but there are scores of {scored} images "
            f"and the trace has {images}; give what the network returned for one batch as it is."
        )
    if classes is None:
        return torch.ones(images, 1, dtype=torch.float64)
    return (predicted_classes(out.scores, None) == torch.tensor(classes)).double()


def _summed(layer: LayerTrace, chosen: Tensor) -> _Sums:
    def total(values: Tensor) -> Tensor:
        return torch.einsum("km,k...->m...", chosen, values)

    def of(name: str, capsules: Capsules) -> Capsules:
        pose = capsules.pose.detach().cpu().double()
        return Capsules(total(pose), total(image_lengths(name, capsules)))

    children, parents = layer.children, layer.routed.parents
    return _Sums(
        of(f"below {layer.name}", children), total(finite_coupling(layer)), of(layer.name, parents)
    )


def _added(total: list[_Sums], sums: list[_Sums]) -> list[_Sums]:
    if [_shapes(each) for each in total] != [_shapes(each) for each in sums]:
        raise TorchcapsError(
            "a mean is taken over batches of one network, but the layers of two batches differ in "
            "number or size; call mean_trace for each network."
        )
    added: list[_Sums] = _pytree.tree_map(torch.add, total, sums)
    return added


def _shapes(sums: _Sums) -> list[torch.Size]:
    return [each.shape for each in _pytree.tree_leaves(sums)]


def _mean(layer: LayerTrace, sums: _Sums, counts: Tensor) -> LayerTrace:
    """Divide, in the numbers of the network: in half precision an even split stays one."""

    def mean(values: Tensor, like: Tensor) -> Tensor:
        return torch.einsum("m...,m->m...", values, 1 / counts).to(like.dtype)

    def of(capsules: Capsules, like: Tensor) -> Capsules:
        return Capsules(mean(capsules.pose, like), mean(lengths(capsules), like))

    children = of(sums.children, layer.children.pose)
    parents = of(sums.parents, layer.routed.parents.pose)
    coupling = mean(sums.coupling, last_coupling(layer))
    step = Step(children, coupling, parents)
    return replace(layer, children=children, routed=Routed(parents, (step,)))
