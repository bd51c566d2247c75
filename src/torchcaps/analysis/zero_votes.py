"""Exactly-zero votes and blocks: how much of the tree pruning has cut, after [renzulli2025] Eq. 12.

Over images, children i and parents j, for blocks W_ij and votes û_ij = W_ij u_i:
    z_block = share of pairs with W_ij = 0 in every entry
    z_vote = share of (image, i, j) with û_ij = 0 in every entry ≥ z_block
and the part of z_vote that is due to u_i = 0.

Departures: the shares are ours. A vote is what the weights make of a pose, without biases and
coordinates.
Ambiguities: none. Entries pruned independently at sparsity p leave z_block = p^(entries of W_ij).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.analysis.measure import Answer, Labelled
from torchcaps.analysis.moments import Moments
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.trace import check_any, check_trace
from torchcaps.errors import TorchcapsError
from torchcaps.types import LayerTrace, Trace

__all__ = ["LayerZeroVotes", "MeasureZeroVotes", "ZeroVotes", "zero_blocks"]


@dataclass(frozen=True)
class LayerZeroVotes:
    """One routed layer whose children have weights of their own."""

    name: str
    zero_blocks: float = quantity("share", "blocks of weights that are zero in every entry")
    expected: float = quantity("share", "the same, had its zero entries fallen independently")
    zero_votes: float = quantity("share", "votes that are zero in every entry")
    dead_children: float = quantity("share", "votes that are zero because the child is")


@dataclass(frozen=True)
class ZeroVotes(Result):
    """One row a routed layer that has such weights, from the bottom up."""

    images: int
    layers: tuple[LayerZeroVotes, ...]


def zero_blocks(weight: Tensor) -> Tensor:
    """Which blocks [*, d_out, d_in] are zero in every entry: bool [*]."""
    return (weight == 0).flatten(-2).all(-1)


class MeasureZeroVotes:
    """Zero blocks and votes of every routed layer whose children have weights of their own."""

    def __init__(self) -> None:
        self._votes: dict[str, Moments] = {}  # of (zero votes, those of zero children)
        self._blocks: dict[str, tuple[float, float]] = {}

    def update(self, out: Answer, batch: Labelled) -> None:
        self.add(out.trace)

    def add(self, trace: Trace) -> None:
        """Measure the images of a trace."""
        check_trace(trace)
        for layer, weight in _weights(trace):
            pose = layer.children.pose.detach().cpu()  # [k, i, d]
            zero = _zero_votes(pose, weight)  # [k, i, j]
            dead = (pose == 0).all(-1, keepdim=True).expand_as(zero)
            both = torch.stack([zero.flatten(1), dead.flatten(1)], -1)
            self._votes.setdefault(layer.name, Moments()).add(both.double().mean(1))
            expected = float((weight == 0).double().mean()) ** weight[0, 0].numel()
            self._blocks[layer.name] = float(zero_blocks(weight).double().mean()), expected

    def merge(self, other: "MeasureZeroVotes") -> None:
        for name, moments in other._votes.items():
            self._votes.setdefault(name, Moments()).merge(moments)
        self._blocks |= other._blocks

    def result(self) -> ZeroVotes:
        check_any(self._votes)
        rows = [
            LayerZeroVotes(name, *self._blocks[name], *moments.mean.tolist())
            for name, moments in self._votes.items()
        ]
        return ZeroVotes(next(iter(self._votes.values())).count, tuple(rows))


def _weights(trace: Trace) -> list[tuple[LayerTrace, Tensor]]:
    """The layers that have a block for every child and parent, with their weights."""
    found, others = [], []
    for layer in trace:
        children = layer.children.pose.shape[-2]
        weight = layer.weight
        if (
            weight is None
            or weight.ndim != 4
            or len(weight) != children
            or layer.window is not None
        ):
            size = "none" if weight is None else list(weight.shape)
            others.append(f"layer {layer.name} of {children} children has {size}")
        else:
            found.append((layer, weight.detach().cpu()))
    if not found:
        raise TorchcapsError(
            f"zero votes are counted where every child has weights [child, parent, ., .] of its "
            f"own, but {', '.join(others)}."
        )
    return found


def _zero_votes(pose: Tensor, weight: Tensor) -> Tensor:
    """Which votes are zero in every entry: bool [k, i, j]; of vector or of matrix poses."""
    d_out, d_in = weight.shape[-2:]
    if pose.shape[-1] == d_in:
        votes = torch.einsum("kid,ijed->kije", pose, weight)
    else:
        matrix = pose.unflatten(-1, (-1, d_out))  # [k, i, side, side]
        votes = torch.einsum("kixy,ijyz->kijxz", matrix, weight).flatten(-2)
    return (votes == 0).all(-1)
