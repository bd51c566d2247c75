"""Reading a trace: joining batches, names of layers, lengths."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree

from torchcaps.errors import TorchcapsError
from torchcaps.types import Capsules, LayerTrace, Routed, Trace

T = TypeVar("T", Capsules, Routed)

__all__ = ["capsule_layers", "check_finite", "join", "last_coupling", "lengths"]


def join(traces: Iterable[Trace]) -> Trace:
    """One trace of many batches, their images one after the other."""
    traces = list(traces)
    if not traces:
        raise TorchcapsError("join needs at least one trace, but got none; was there any batch?")
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


def capsule_layers(trace: Trace) -> list[tuple[str, Capsules]]:
    """Every layer of capsules from the bottom up; the lowest is called "primary"."""
    if not trace:
        raise TorchcapsError(
            'the trace is empty; call the network with keep="last". A network without capsules has '
            "no "
            "trace at all."
        )
    return [("primary", trace[0].children)] + [
        (layer.name, layer.routed.parents) for layer in trace
    ]


def lengths(capsules: Capsules) -> Tensor:
    """Activations [*b, i]; of capsules without one, the lengths of their poses."""
    if capsules.activation is not None:
        return capsules.activation
    norm: Tensor = torch.linalg.vector_norm(capsules.pose, dim=-1)
    return norm


def last_coupling(layer: LayerTrace) -> Tensor:
    """The couplings [*b, i, j] that made the parents."""
    if not layer.routed.steps:
        raise TorchcapsError(
            f'layer {layer.name} kept no couplings; call the network with keep="last".'
        )
    return layer.routed.steps[-1].coupling


def check_finite(name: str, values: Tensor) -> None:
    """Refuse to measure a network that has come apart."""
    if not bool(values.isfinite().all()):
        raise TorchcapsError(
            f"layer {name} holds NaN or infinite values, so there is nothing to measure; did "
            f"training diverge? A smaller learning rate usually mends it."
        )
