"""What a computation on fake tensors would take: the bytes alive at its fullest, and its FLOPs.

Fake tensors have a size and no memory. Every storage is counted from the operator that makes it
until nobody holds it, those that autograd saves too. A process holds more than its tensors; these
rules say how much, measured on Linux with glibc and oneDNN (benchmarks/records/estimate.json):

code       what a first step loads of torch's libraries, whatever the network: LOADED; and of
           oneDNN with the first convolution: LOADED again
maps       a convolution reads and writes copies of maps, but for those with the channels last
heap       pieces from MAPPED_FROM bytes go back to the system when they are freed. Smaller ones
           come from a heap that never fits exactly: it grows to HEAP times what comes and goes in
           it, and stays. Parameters and the state of the optimiser stay where they are.
kept heap  where freed memory is kept, all pieces come from the heap, which grows to 1.1 to 1.75
           times what comes and goes in it, by no rule of ours: the same step differs by a third
           from process to process. KEPT_HEAP is the middle.
"""

import math
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from torchcaps.layers import Routing
from torchcaps.ops.costs import COSTS

LOADED = 17 << 20
MAPPED_FROM = 32 << 20
HEAP = 1.75
KEPT_HEAP = 1.35

aten = torch.ops.aten


@dataclass
class Piece:
    """A storage, or memory that an operator borrows."""

    name: str
    shape: tuple[int, ...]
    size: int  # bytes
    # Counted in pieces: the last that was added before it went.
    born: int = 0
    died: int | None = None
    stays: bool = False


class Footprint(TorchDispatchMode):
    """Counts while it is entered, inside a FakeTensorMode.

    `tensors` is the peak of what tensors take, exactly; `resident` that of the process above its
    imports, by the rules above; `flops` those that `torch.utils.flop_counter` counts. What would
    be looked up in a tensor, as checks do, is taken to be in order.

    keeps_memory: as `layers.keep_memory` does.
    """

    def __init__(self, *, keeps_memory: bool = False) -> None:
        super().__init__()
        self._mapped_from = math.inf if keeps_memory else MAPPED_FROM
        self._heap = KEPT_HEAP if keeps_memory else HEAP
        self.flops = 0
        self.tensors = 0
        self.resident = 0
        self._loaded = LOADED
        # Bytes that stay, those of mapped pieces, and those that come and go in the heap.
        self._alive: Counter[str] = Counter()
        self._most_moving = 0
        self._clock = 0
        self._fullest = 0
        self._pieces: list[Piece] = []
        # By the address of a storage: what it is, and a reference that tells when it goes.
        self._held: dict[int, tuple[Piece, Any]] = {}
        self._where: list[str] = []
        self._are_to_stay = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is aten._local_scalar_dense.default:
            return True
        out = func(*args, **kwargs)
        operator = func._overloadpacket
        if operator in flop_registry:
            self.flops += flop_registry[operator](*args, **kwargs, out_val=out)
        name = self._name(func)
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self.hold(tensor, name)
        lent = COSTS[operator](*args).workspace if operator in COSTS else 0
        if operator is aten.convolution:
            self._loaded = 2 * LOADED
            lent = 0 if _is_last(*args[:2]) else args[0].nbytes + out.nbytes
        if lent:
            piece = Piece(f"{name}, workspace", (), lent)
            self._add(piece)
            self._drop(piece)
        return out

    def hold(self, tensor: Tensor, name: str) -> None:
        """Count a tensor, unless it is counted."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._held:
            return
        size = storage.nbytes()
        piece = Piece(name, tuple(tensor.shape), size, stays=self._are_to_stay)

        def go(_: object) -> None:
            del self._held[key]
            self._drop(piece)

        self._held[key] = (piece, weakref.ref(storage, go))
        self._add(piece)

    def call(self, tensor: Tensor, name: str) -> None:
        """Give a counted tensor a name of its own."""
        self._held[tensor.untyped_storage()._cdata][0].name = name

    def largest(self, count: int) -> list[Piece]:
        """List the largest pieces at the fullest moment."""
        there = [
            piece
            for piece in self._pieces
            if piece.born <= self._fullest and (piece.died is None or piece.died >= self._fullest)
        ]
        return sorted(there, key=lambda piece: -piece.size)[:count]

    @contextmanager
    def naming(self, model: nn.Module) -> Iterator[None]:
        """Call tensors by the part of the model that makes them."""
        handles = []
        for name, part in model.named_modules():
            # Votes are stored for a routing with a hook. What it makes is its layer's.
            if not name or isinstance(part, Routing):
                continue
            handles += [
                part.register_forward_pre_hook(lambda *_, name=name: self._where.append(name)),
                part.register_forward_hook(lambda *_: self._leave()),
            ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @contextmanager
    def staying(self) -> Iterator[None]:
        """Count what is made now as there in every step to come."""
        self._are_to_stay = True
        try:
            yield
        finally:
            self._are_to_stay = False

    def _leave(self) -> None:
        self._where.pop()

    def _name(self, func: Any) -> str:
        operator = func._overloadpacket.__name__
        if torch._C._current_graph_task_id() != -1:
            return f"backward pass, {operator}"
        return f"{self._where[-1] if self._where else 'model'}, {operator}"

    def _add(self, piece: Piece) -> None:
        self._clock += 1
        piece.born = self._clock
        self._pieces.append(piece)
        self._count(piece, 1)
        self._most_moving = max(self._most_moving, self._alive["moving"])
        self.tensors = max(self.tensors, self._alive.total())
        there = self._loaded + self._alive["stays"] + self._alive["mapped"]
        resident = int(there + self._heap * self._most_moving)
        if resident > self.resident:
            self.resident, self._fullest = resident, self._clock

    def _drop(self, piece: Piece) -> None:
        piece.died = self._clock
        self._count(piece, -1)

    def _count(self, piece: Piece, sign: int) -> None:
        kind = "mapped" if piece.size >= self._mapped_from else "moving"
        self._alive["stays" if piece.stays else kind] += sign * piece.size


def _is_last(*tensors: Tensor) -> bool:
    """Whether a convolution takes all of them with their channels last, for one of them is so."""
    return any(
        tensor.ndim == 4
        and tensor.is_contiguous(memory_format=torch.channels_last)
        and not tensor.is_contiguous()
        for tensor in tensors
    )
