"""Reading a trace: joining batches, names of layers, lengths."""

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree

from torchcaps._checks import check_finite, check_shape
from torchcaps.errors import TorchcapsError, short
from torchcaps.types import Capsules, LayerTrace, Routed, Trace

ONE_BATCH = "a trace over images has exactly one batch axis"
T = TypeVar("T", Capsules, Routed)


def join(traces: Iterable[Trace]) -> Trace:
    """Make one trace of many batches, their images one after the other.

    Arguments:
        traces: of the same layers, one a batch.

    >>> whole = join(model(images, keep="last").trace for images in batches)
    """
    traces = list(traces) if isinstance(traces, Iterable) else [traces]
    if not traces:
        raise TorchcapsError("join needs at least one trace, but got none; was there any batch?")
    for trace in traces:
        _check_layers(trace)
    shapes = {
        tuple((layer.name, layer.routed.parents.pose.shape[1:]) for layer in t) for t in traces
    }
    if len(shapes) > 1:
        raise TorchcapsError(
            "join needs traces of one network, but their layers differ in names or sizes; join "
            "the batches of each network apart."
        )
    return tuple(
        replace(
            first,
            children=_cat(first.children, *(layer.children for layer in rest)),
            routed=_cat(first.routed, *(layer.routed for layer in rest)),
        )
        for first, *rest in zip(*traces, strict=True)
    )


def _cat(*parts: T) -> T:
    def cat(*same: Tensor | None) -> Tensor | None:
        return None if same[0] is None else torch.cat([each for each in same if each is not None])

    joined: T = _pytree.tree_map(cat, *parts)
    return joined


def check_trace(trace: Trace) -> None:
    """Refuse what is no trace, and a trace without layers."""
    _check_layers(trace)
    if not trace:
        raise TorchcapsError(
            'the trace is empty; call the network with keep="last". A network without capsules has '
            "no trace at all."
        )


def _check_layers(trace: Trace) -> None:
    if not isinstance(trace, Sequence) or not all(hasattr(layer, "routed") for layer in trace):
        # A tensor has a method of that name.
        inside = isinstance(getattr(trace, "trace", None), Sequence)
        meant = "its .trace" if inside else 'what model(images, keep="last").trace holds'
        raise TorchcapsError(
            f"a trace is a tuple with a LayerTrace for each routed layer, but came as "
            f"{type(trace).__name__}; give {meant}."
        )


def check_any(seen: Sized) -> None:
    """Refuse to give the result of a measurement that has seen no image."""
    if not seen:
        raise TorchcapsError("there are no images to measure; update the measurement first.")


def capsule_layers(trace: Trace) -> list[tuple[str, Capsules]]:
    """Give every layer of capsules from the bottom up; the lowest is called "primary".

    Arguments:
        trace: what `model(images, keep="last").trace` holds.

    >>> [name for name, capsules in capsule_layers(out.trace)]
    """
    check_trace(trace)
    return [("primary", trace[0].children)] + [
        (layer.name, layer.routed.parents) for layer in trace
    ]


def lengths(capsules: Capsules) -> Tensor:
    """Give activations [*b, i]; of capsules without one, the lengths of their poses.

    Arguments:
        capsules: poses [*b, i, d], with activations or without.

    >>> lengths(Capsules(torch.tensor([[3.0, 4.0]])))
    tensor([5.])
    """
    if capsules.activation is not None:
        return capsules.activation
    norm: Tensor = torch.linalg.vector_norm(capsules.pose, dim=-1)
    return norm


def last_coupling(layer: LayerTrace) -> Tensor:
    """Return the couplings [*b, i, j] that made the parents."""
    if not layer.routed.steps:
        raise TorchcapsError(
            f'layer {layer.name} kept no couplings; call the network with keep="last".'
        )
    return layer.routed.steps[-1].coupling


def finite_coupling(layer: LayerTrace) -> Tensor:
    """Return the couplings that made the parents, [k, i, j] or [k, p, i, j]; finite, in float64."""
    coupling = last_coupling(layer).detach().cpu().double()
    check_finite(f"layer {layer.name}", coupling)
    return coupling


def child_of(trace: Trace) -> Mapping[str, Tensor]:
    """Give the capsule that each slot of the couplings of a layer is, by the name of the layer.

    Of a layer with windows int64 [p, i]: the child in slot i of window p, so that
    `lengths(layer.children)[:, child_of(trace)[layer.name]]` lies beside couplings [k, p, i, j].
    Of a dense layer [i], the children in their order.

    Arguments:
        trace: what `model(images, keep="last").trace` holds.

    >>> child_of(out.trace)["classes"].shape
    """
    check_trace(trace)
    found = {}
    for layer in trace:
        device = layer.children.pose.device
        if layer.window is None:
            found[layer.name] = torch.arange(layer.children.pose.shape[-2], device=device)
        else:
            found[layer.name] = layer.window.child_id(device)
    return found


def image_coupling(layer: LayerTrace) -> Tensor:
    """Return couplings [k, i, j] of a dense layer over images, finite, in float64."""
    coupling = finite_coupling(layer)
    if layer.window is not None:
        raise TorchcapsError(
            f"one coupling of each child to each parent is needed, but {layer.name} looks through "
            f"windows, {list(coupling.shape)}; take a network in which this layer is dense."
        )
    check_shape(f"couplings of {layer.name}", coupling, ("images", "child", "parent"), ONE_BATCH)
    return coupling


def check_children(layer: LayerTrace) -> None:
    """Refuse couplings that are not those of the children beside them, one row each."""
    rows, children = last_coupling(layer).shape[-2], layer.children.pose.shape[-2]
    if layer.window is None and rows != children:
        raise TorchcapsError(
            f"couplings have a row for each child, but {layer.name} has {rows} rows and "
            f"{children} children; where whole maps are routed, as by Conv3dCapsules, let the "
            f"children of its trace be the {rows} maps."
        )


def check_classes(classes: Sequence[int]) -> None:
    """Refuse what is no list of numbers of classes."""
    is_list = isinstance(classes, Sequence) and len(classes) > 0
    if not is_list or any(type(each) is not int for each in classes):
        raise TorchcapsError(
            f"classes are whole numbers in a list, [3] or range(10), but came as {short(classes)}; "
            f"leave classes out for all images together."
        )


def class_labels(labels: Tensor, n_classes: int) -> Tensor:
    """Return labels [k, m] of images that show m objects each; refuse those of no class."""
    each = labels.detach().cpu().reshape(len(labels), -1)
    if each.is_floating_point() or each.shape[1] > n_classes:
        raise TorchcapsError(
            f"labels must be whole numbers, one for each object of an image and at most as many as "
            f"the {n_classes} classes, but came as {each.dtype} of shape {list(labels.shape)}."
        )
    check_no_one_hot(labels, n_classes)
    beyond = each[(each < 0) | (each >= n_classes)]
    if len(beyond):
        raise TorchcapsError(
            f"the network scores {n_classes} classes, so labels must be 0 to {n_classes - 1}, but "
            f"an image has label {int(beyond[0])}; take the data that the network was trained on, "
            f"and count classes from 0."
        )
    return each


def check_no_one_hot(labels: Tensor, n_classes: int) -> None:
    """Refuse rows of zeros and ones where numbers of classes are expected."""
    wide = labels.ndim == 2 and labels.shape[1] == n_classes > 1 and len(labels) > 0
    if wide and bool(((labels == 0) | (labels == 1)).all()):
        raise TorchcapsError(
            f"labels must be numbers of classes, [b] or [b, m], but came one-hot as "
            f"{list(labels.shape)} zeros and ones; give labels.argmax(-1)."
        )


def judged_answers(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Say which images are right, bool [k], and name their classes, [k, m]: as many of the highest
    scores [k, classes] as an image has labels. Right are those whose highest scores are of the
    classes that are there, as many as differ: a digit that is laid over itself is one."""
    if len(scores) != len(labels):
        raise TorchcapsError(
            f"answers are judged image by image, so scores and labels must be of as many, but came "
            f"as {list(scores.shape)} and {list(labels.shape)}."
        )
    each = class_labels(labels, scores.shape[1])
    there = torch.zeros(scores.shape, dtype=torch.bool).scatter_(1, each, True)
    places = _highest(scores, scores.shape[1]).argsort(-1)
    right = ((places < there.sum(-1, keepdim=True)) == there).all(-1)
    return right, _highest(scores, each.shape[1]).sort(-1).values


def predicted_classes(scores: Tensor, labels: Tensor | None) -> Tensor:
    """Name as many of the highest classes as an image has labels, [k, m]; one without labels."""
    m = 1
    if labels is not None and labels.ndim == 2:
        m = class_labels(labels, scores.shape[1]).shape[1]
    return _highest(scores, m)


def _highest(scores: Tensor, m: int) -> Tensor:
    """Find the m classes with the highest scores, [k, m]; of equal ones the first."""
    return scores.detach().cpu().argsort(dim=-1, descending=True, stable=True)[:, :m]


def labelled_classes(what: str, out: Any, labels: Tensor | None) -> tuple[Capsules, Tensor]:
    """Return the class capsules of a network, and the true class of each image, on their device."""
    classes = getattr(out, "classes", None)
    if classes is None:
        raise TorchcapsError(
            f"{what} looks at poses of class capsules, but the network returns no `classes`."
        )
    if labels is None or labels.ndim != 1:
        raise TorchcapsError(f"{what} needs one label an image, to know which capsule to see.")
    known = class_labels(labels, classes.pose.shape[-2])[:, 0]
    return classes, known.to(classes.pose.device)


def parents_are_classes(trace: Trace, n_classes: int) -> bool:
    """Say whether the last layer is dense and has one parent for each class that is scored."""
    return trace[-1].window is None and last_coupling(trace[-1]).shape[-1] == n_classes


def check_parents_are_classes(trace: Trace, n_classes: int) -> None:
    """Refuse to take parents for classes where something behind them scores."""
    last = trace[-1]
    # What looks through windows is refused by name where its couplings are read.
    if last.window is None and not parents_are_classes(trace, n_classes):
        raise TorchcapsError(
            f"the last layer must have one parent for each class, but {last.name} has "
            f"{last_coupling(last).shape[-1]} parents, and {n_classes} classes are scored by what "
            f"reads them; take a network whose last capsules are its classes."
        )


def class_coupling(trace: Trace, predicted: Tensor) -> Tensor:
    """Give couplings [k, i] of all children of the last layer to the predicted class [k] of an
    image.

    Whoever knows how many classes there are calls `check_parents_are_classes` before.
    """
    coupling = image_coupling(trace[-1])
    k, n = len(coupling), coupling.shape[-1]
    so = "of scores take scores.argmax(-1)"
    check_shape("the predicted classes", predicted, (k,), so, of="whole numbers")
    predicted = predicted.detach().cpu()
    if not bool(((predicted >= 0) & (predicted < n)).all()):
        raise TorchcapsError(
            f"the last layer must have one parent for each class, but {trace[-1].name} has {n} "
            f"parents for {k} images, and the predicted classes are from {int(predicted.min())} to "
            f"{int(predicted.max())}."
        )
    return coupling[torch.arange(len(coupling)), :, predicted]


def image_lengths(name: str, capsules: Capsules) -> Tensor:
    """Return lengths [k, n] of a layer over images, finite, in float64."""
    length = lengths(capsules).detach().cpu().double()
    check_shape(f"lengths of {name}", length, ("images", "capsule"), ONE_BATCH)
    check_finite(f"layer {name}", length)
    return length
