"""What operators cost: FLOPs and memory that nobody outside them can see.

A counter of FLOPs or bytes sees an operator go in and come out, not the votes it makes a tile at a
time. Counted are, as `torch.utils.flop_counter` counts,

    the products that make votes, each time they are made: 2 b i j d k for poses of k numbers that
    meet one weight (of a matrix pose, a row); children that share weights are summed before the
    uniform iteration, which is cheaper by as much
    the products that make gradients of weights and of poses of them, as many for each
    2 b i j d for every Σ_i c_ij û_ij and every ⟨û_ij, v_j⟩, products in the plain op
    where votes are not made but folded (`ops.fused.agreement`), as many for each of the two, and
    2 b i j k where children are multiplied number by number

and not squares, exponentials or the moments of EM routing, which the plain op does not count.

The workspace is what an operator holds beside its arguments and its results at its fullest.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch.utils.flop_counter import register_flop_formula

from torchcaps.ops.operators import Asked, Operator

__all__ = ["COSTS", "Cost", "register"]


class Cost(NamedTuple):
    """Of one call of an operator."""

    flops: int
    workspace: int  # bytes


# Of operators by their packets, from the arguments of the dispatcher.
COSTS: dict[Any, Callable[..., Cost]] = {}


def register(
    operator: Operator[Any, Any],
    forward: Callable[[Any], Cost],
    backward: Callable[[Asked[Any]], Cost] | None = None,
) -> None:
    """Have an operator and its backward pass cost so much."""
    _register(operator.forward.overloadpacket, _of_flat(operator.given, forward))
    if backward is not None:
        _register(operator.backward.overloadpacket, _of_flat(operator.asked, backward))


def _register(packet: Any, cost: Callable[..., Cost]) -> None:
    """The same of one operator, by the arguments of the dispatcher."""
    COSTS[packet] = cost

    @register_flop_formula(packet, get_raw=True)
    def flops(*arguments: Any, out_val: object = None, **_: object) -> int:
        return cost(*arguments).flops


def _of_flat(unpacked: Callable[..., Any], cost: Callable[[Any], Cost]) -> Callable[..., Cost]:
    return lambda *flat: cost(unpacked(*flat))
