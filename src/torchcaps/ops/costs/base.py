"""What operators cost: FLOPs and memory that nobody outside them can see.

A counter of FLOPs or bytes sees an operator go in and come out, not the votes it makes a tile at a
time. Counted are, as `torch.utils.flop_counter` counts,

    the products that make votes, each time they are made: 2 b i j d k for poses of k numbers that
    meet one weight (of a matrix pose, a row); children that share weights are summed before the
    uniform iteration, which is cheaper by as much
    the products that make gradients of weights and of poses of them, as many for each
    2 b i j d for every Σ_i c_ij û_ij and every ⟨û_ij, v_j⟩, products in the plain op

and not squares, exponentials or the moments of EM routing, which the plain op does not count.

The workspace is about what an operator holds beside its arguments and its results at its fullest,
with every gradient that can be asked for.
"""

import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any, NamedTuple

from torchcaps.ops.fused.tiles import MadeOf
from torchcaps.ops.operators import Asked, Operator


class Cost(NamedTuple):
    """What one call of an operator takes."""

    flops: int
    workspace: int  # bytes


# Of operators by their packets, from the arguments of the dispatcher.
COSTS: dict[Any, Callable[..., Cost]] = {}
COUNTER = "torch.utils.flop_counter"
FORMULAS: dict[Any, Callable[..., int]] = {}


def register(
    operator: Operator[Any, Any],
    workspace: Callable[[Any, bool], int],
    forward: Callable[[Any], int],
    backward: Callable[[Asked[Any]], int] | None = None,
) -> None:
    """Have an operator and its backward pass make so many FLOPs; `workspace` is asked what they are
    given, and whether it is the backward pass."""

    def going(*flat: Any) -> Cost:
        given = operator.given(*flat)
        return Cost(forward(given), workspace(given, False))

    _register(operator.forward.overloadpacket, going)
    if backward is None:
        return

    def coming_back(*flat: Any) -> Cost:
        asked = operator.asked(*flat)
        return Cost(backward(asked), workspace(asked.given, True))

    _register(operator.backward.overloadpacket, coming_back)


def _register(packet: Any, cost: Callable[..., Cost]) -> None:
    COSTS[packet] = cost

    def flops(*arguments: Any, out_val: object = None, **_: object) -> int:
        return cost(*arguments).flops

    count(packet, flops)


def count(packet: Any, flops: Callable[..., int]) -> None:
    """Have PyTorch's counter ask this how many FLOPs an operator makes, once it is there."""
    FORMULAS[packet] = flops
    if COUNTER in sys.modules:
        sys.modules[COUNTER].flop_registry[packet] = flops


class _Telling(MetaPathFinder):
    """Tells PyTorch's counter of FLOPs our formulas when somebody imports it. We do not: it imports
    triton where that is installed, which takes half as long as all of torchcaps."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != COUNTER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader: Any = spec and spec.loader
        run = loader.exec_module

        def run_and_tell(module: Any) -> None:
            run(module)
            module.flop_registry.update(FORMULAS)

        loader.exec_module = run_and_tell
        return spec


if COUNTER not in sys.modules:
    sys.meta_path.insert(0, _Telling())


class Sizes(NamedTuple):
    """How large the votes of a call are."""

    products: int  # FLOPs of making all of them once
    agreement: int  # FLOPs of one multiply-add for each of their numbers
    alike: int  # how many children share their weights
    children: int  # bytes; so are those below
    weight: int
    couplings: int
    parents: int


def sizes_of(votes: MadeOf) -> Sizes:
    samples, windows, n_in, n_out, size = votes.counts()
    weight, couplings, wide = votes.weight, samples * windows * n_in * n_out, votes.dtype.itemsize
    inner = weight.shape[-2 if votes.kind == "matrix" else -1]
    types = 1 if votes.sharing == "all" else len(weight)
    return Sizes(
        products=2 * couplings * size * inner,
        agreement=2 * couplings * size,
        alike=n_in // max(1, types),
        children=wide * votes.pose.numel(),
        weight=wide * weight.numel(),
        couplings=wide * couplings,
        parents=wide * samples * windows * n_out * size,
    )
