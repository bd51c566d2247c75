"""What the Triton operators cost.

The workspace is what kernels hand to each other: parents of every iteration, their partial sums,
and where a tile does not have all parents, three numbers of every child and sample; of gradients,
the partial sums of weights that several programs share, and of poses one for every window that sees
them.
"""

from typing import Any

from torchcaps.ops.costs import em as em_flops
from torchcaps.ops.costs import loop
from torchcaps.ops.costs.base import register, sizes_of
from torchcaps.ops.fused.loop import Given
from torchcaps.ops.fused.tiles import MadeOf
from torchcaps.ops.triton import em, mixing
from torchcaps.ops.triton.votes import CHILDREN, blocks_of, shape_of, shared_out

__all__: list[str] = []


def _mixing(made_of: MadeOf) -> loop.Mixing:
    size = sizes_of(made_of)
    alike = 1 if made_of.window else size.alike
    return loop.Mixing(size.products, size.agreement, size.products // alike)


def _of_loop(given: Given, backward: bool) -> int:
    return _held(given.made_of, backward, given.loop.iterations)


def _of_em(given: Any, backward: bool) -> int:
    return _held(em_flops.votes_of(given), backward, 1)


def _held(votes: MadeOf, backward: bool, iterations: int) -> int:
    size, shape = sizes_of(votes), shape_of(votes)
    blocks = blocks_of(shape)
    tiles, lanes = -(-shape.parents // blocks.parents), -(-shape.batch // blocks.lanes)
    partial, _ = shared_out(shape.children, lanes * tiles, CHILDREN)
    found = 0 if tiles == 1 else 12 * shape.batch * shape.children
    held = (2 + partial) * size.parents + found
    if not backward:
        return held
    splits, _ = shared_out(shape.children // shape.types, shape.types, 1)
    of_slots = 4 * shape.batch * shape.children * votes.pose.shape[-1] if votes.window else 0
    of_weight = splits * size.weight if splits > 1 else 0
    return held + iterations * (4 * size.parents + 2 * found) + of_slots + of_weight


register(
    mixing.by_kernels,
    _of_loop,
    lambda given: loop.forward(given, _mixing(given.made_of)),
    lambda asked: loop.backward(asked, _mixing(asked.given.made_of)),
)
register(em.moments, _of_em, em_flops.moments, em_flops.backward)
register(em.distances, _of_em, em_flops.distances, em_flops.backward)
