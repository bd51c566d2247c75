"""Exactly-zero votes and blocks: how much of the tree pruning has cut, after [renzulli2025] Eq. 12.

Over images, children i and parents j, for blocks W_ij and votes û_ij = W_ij u_i:
    z_block = share of pairs with W_ij = 0 in every entry
    z_vote = share of (image, i, j) with û_ij = 0 in every entry ≥ z_block
and the part of z_vote that is due to u_i = 0.

Through windows a vote is one of a slot, and a child that several windows see votes in each; where
slots or types share a block, it is one block.

Departures: the shares are ours. A vote is what the weights make of a pose, without biases and
coordinates.
Ambiguities: a vote is zero where its block reads no component of u_i that is not zero; that sums
cancel to zero by chance does not count. Entries pruned independently at sparsity p leave
z_block = p^(entries of W_ij).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps._checks import check_finite
from torchcaps.analysis.by_name import measured_as
from torchcaps.analysis.measure import OfTraces
from torchcaps.analysis.moments import Moments
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.trace import check_any, check_trace
from torchcaps.errors import TorchcapsError
from torchcaps.types import LayerTrace, Trace

# Votes looked at together; all windows of a hundred images have hundreds of millions.
AT_ONCE = 2**22


@dataclass(frozen=True)
class LayerZeroVotes:
    """One routed layer whose children, slots or types have weights of their own."""

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
    """Say which blocks [*, d_out, d_in] are zero in every entry: bool [*].

    Arguments:
        weight: [*, d_out, d_in].

    >>> zero_blocks(torch.zeros(8, 3, 4, 4)).all()
    tensor(True)
    """
    return (weight == 0).flatten(-2).all(-1)


@measured_as("zero-votes")
class MeasureZeroVotes(OfTraces):
    """Zero blocks and votes of every routed layer whose children have weights of their own."""

    def __init__(self) -> None:
        self._votes: dict[str, Moments] = {}  # of (zero votes, those of zero children)
        self._blocks: dict[str, tuple[float, float]] = {}

    def add(self, trace: Trace) -> None:
        check_trace(trace)
        for layer, weight in _weights(trace):
            seen = self._votes.setdefault(layer.name, Moments())
            for shares in _shares(layer, weight):
                seen.add(shares)
            expected = float((weight == 0).double().mean()) ** math.prod(weight.shape[-2:])
            self._blocks[layer.name] = float(zero_blocks(weight).double().mean()), expected

    def result(self) -> ZeroVotes:
        check_any(self._votes)
        rows = [
            LayerZeroVotes(name, *self._blocks[name], *moments.mean.tolist())
            for name, moments in self._votes.items()
        ]
        return ZeroVotes(next(iter(self._votes.values())).count, tuple(rows))


def _weights(trace: Trace) -> list[tuple[LayerTrace, Tensor]]:
    """Find the layers with blocks for children, slots of a window or types, and their weights."""
    found, others = [], []
    for layer in trace:
        weight, slots = layer.weight, _slots(layer)
        if weight is not None and weight.ndim == 4 and slots % len(weight) == 0:
            found.append((layer, weight.detach().cpu()))
        else:
            size = "none" if weight is None else list(weight.shape)
            others.append(f"layer {layer.name} of {slots} children has {size}")
    if not found:
        raise TorchcapsError(
            f"zero votes are counted in layers whose children, window slots or types have weights "
            f"of their own, [child, parent, ., .], but here {', '.join(others)}; take a network "
            f"with such a layer."
        )
    return found


def _slots(layer: LayerTrace) -> int:
    """Count the children that a parent sees."""
    window = layer.window
    if window is None:
        return layer.children.pose.shape[-2]
    return math.prod(window.kernel) * window.child_grid[-1]


def _shares(layer: LayerTrace, weight: Tensor) -> Iterator[Tensor]:
    """Return the share of zero votes of each image, and that of zero children, [k, 2]."""
    pose = layer.children.pose.detach().cpu()
    check_finite(f"layer {layer.name}", pose)
    vector = pose.shape[-1] == weight.shape[-1]
    if not vector:  # Votes are M W: a column of the matrix meets a row of the block.
        pose = pose.unflatten(-1, (-1, weight.shape[-1])).movedim(-1, -2).ne(0).any(-1)
    reads = weight.ne(0).any(-2 if vector else -1)  # [i or types, j, d]
    # Types come last in the order of slots.
    reads = reads.repeat(_slots(layer) // len(reads), 1, 1)
    windows = 1 if layer.window is None else math.prod(layer.window.positions)
    for some in pose.ne(0).split(max(1, AT_ONCE // (windows * reads.shape[0] * reads.shape[1]))):
        seen = some.unsqueeze(1) if layer.window is None else layer.window.of(some)  # [k, p, i, d]
        dead = (~seen.any(-1)).double().mean((1, 2))
        zero = dead
        if not bool(reads.all()):
            met = torch.einsum("kpid,ijd->kpij", seen.float(), reads.float())
            zero = met.eq(0).double().mean((1, 2, 3))
        yield torch.stack([zero, dead], -1)
