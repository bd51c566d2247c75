"""What the Triton operators cost, counted as in `ops.fused.cost`: products that make votes each
time they are made, those of their gradients, and the sums and agreements that are products in the
plain op.

The workspace is what kernels hand to each other: parents of every iteration, their partial sums,
and where a tile does not have all parents, three numbers of every child and sample; of gradients,
the partial sums of weights that several programs share, those of a vote bias, and of poses one for
every window that sees them.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from torchcaps.ops.fused.cost import COSTS, Cost, _register, register
from torchcaps.ops.fused.em import Met, Shared
from torchcaps.ops.fused.tiles import MadeOf
from torchcaps.ops.operators import Asked
from torchcaps.ops.triton import dynamic, em, inverted
from torchcaps.ops.triton.votes import CHILDREN, blocks_of, shape_of, shared_out

__all__ = ["COSTS"]


class _Sizes:
    """FLOPs of all votes, of the same after the children that share weights are summed, and of one
    multiply-add for each of their numbers; how often votes are made for one softmax; bytes."""

    def __init__(
        self, pose: Tensor, weight: Tensor, sharing: str, kind: str, window: Sequence[int] = ()
    ):
        shape = shape_of(pose, weight, sharing, kind, window)
        blocks = blocks_of(shape)
        tiles = -(-shape.parents // blocks.parents)
        lanes = -(-shape.batch // blocks.lanes)
        self.agreement = 2 * shape.batch * shape.children * shape.parents * shape.size
        self.products = self.agreement * shape.inner
        alike = 1 if window else shape.children // shape.types
        self.summed = self.products // alike
        self.made = 1 if tiles == 1 else 2
        self.parents = 4 * shape.batch * shape.parents * shape.size
        self.partial = shared_out(shape.children, lanes * tiles, CHILDREN)[0] * self.parents
        self.found = 0 if tiles == 1 else 12 * shape.batch * shape.children
        splits = shared_out(shape.children // shape.types, shape.types, 1)[0]
        self.of_weight = 4 * splits * weight.numel() if splits > 1 else 0
        self.of_vote_bias = 4 * splits * shape.types * shape.parents * shape.size
        self.of_slots = 4 * shape.batch * shape.children * pose.shape[-1] if window else 0

    def gradients(self, needs: Sequence[bool]) -> int:
        """Bytes held for those of pose, weight and vote bias."""
        held = (self.of_slots, self.of_weight, self.of_vote_bias)
        return sum(size for size, need in zip(held, needs, strict=True) if need)


def _forward(pose: Tensor, weight: Tensor, *arguments: Any) -> Cost:
    _, _, _, prior, sharing, kind, _, iterations, *_ = arguments
    sizes = _Sizes(pose, weight, sharing, kind)
    routed = iterations - (prior is None)
    flops = (iterations - routed) * sizes.summed + routed * sizes.made * sizes.products
    # Without a vote there is nothing to agree with; what remains is the prior.
    agreements = (1 + sizes.made) * routed - sizes.made * (prior is not None)
    return Cost(flops + agreements * sizes.agreement, sizes.parents + sizes.partial + sizes.found)


def _backward(
    of_poses: Tensor | None,
    of_couplings: Tensor | None,
    sums: Tensor,
    pose: Tensor,
    weight: Tensor,
    *arguments: Any,
) -> Cost:
    *_, sharing, kind, _, _, _, _, detach, needs = arguments
    sizes = _Sizes(pose, weight, sharing, kind)
    iterations = len(sums)
    deep = detach == "none" or (detach == "votes" and any(needs[4:]))
    # Back through the iterations, each with its couplings and the gradient of its logits.
    back = iterations - 1 if deep else 0
    flops = back * (sizes.made * sizes.products + (1 + 2 * sizes.made) * sizes.agreement)
    if any(needs[:4]):
        terms = iterations if deep or detach in ("states", "coupling") else 1
        flops += (1 + needs[0] + needs[1]) * sizes.products + 3 * terms * sizes.agreement
    held = (2 * iterations + 1) * sizes.parents + (sizes.partial if back else 0)
    held += iterations * sizes.found
    held += sizes.of_weight * needs[1] + sizes.of_vote_bias * needs[2]
    return Cost(flops, held)


def _sums(parents: Tensor | None, pose: Tensor, weight: Tensor, *arguments: Any) -> Cost:
    _, _, *made_of, _, _ = arguments
    sizes = _Sizes(pose, weight, *made_of)
    if parents is None:
        return Cost(sizes.summed, sizes.partial)
    flops = sizes.made * sizes.products + (1 + sizes.made) * sizes.agreement
    return Cost(flops, sizes.parents + sizes.partial + sizes.found)


def _sums_backward(
    of_sums: Tensor | None,
    of_couplings: Tensor | None,
    parents: Tensor | None,
    pose: Tensor,
    weight: Tensor,
    *arguments: Any,
) -> Cost:
    _, _, *made_of, _, needs = arguments
    sizes = _Sizes(pose, weight, *made_of)
    flops, held = (needs[1] + needs[2]) * sizes.products, 0
    if parents is not None:
        flops += (sizes.made - 1) * (sizes.products + 2 * sizes.agreement)
        flops += needs[0] * (sizes.products + 3 * sizes.agreement)
        flops += any(needs[1:]) * (sizes.products + 4 * sizes.agreement)
        held = sizes.parents + needs[0] * sizes.partial + sizes.found
    return Cost(flops, held + sizes.gradients(needs[1:4]))


def _moments(given: Shared) -> Cost:
    sizes = _sizes_of(given.votes)
    return Cost(2 * sizes.products, 2 * sizes.partial + sizes.parents)


def _moments_backward(asked: Asked[Shared]) -> Cost:
    sizes, needs = _sizes_of(asked.given.votes), asked.needs
    held = 2 * sizes.parents + sizes.of_slots * needs[1] + sizes.of_weight * needs[2]
    return Cost((1 + needs[1] + needs[2]) * sizes.products, held)


def _distances(given: Met) -> Cost:
    sizes = _sizes_of(given.votes)
    return Cost(sizes.products, sizes.parents)


def _distances_backward(asked: Asked[Met]) -> Cost:
    sizes, needs = _sizes_of(asked.given.votes), asked.needs
    held = 2 * (sizes.partial + sizes.parents)
    held += sizes.of_slots * needs[2] + sizes.of_weight * needs[3]
    again = any(needs[2:])
    return Cost((1 + again + needs[2] + needs[3]) * sizes.products, held)


def _sizes_of(votes: MadeOf) -> _Sizes:
    return _Sizes(votes.pose, votes.weight, votes.sharing, votes.kind, votes.window)


for _operator, _cost in (
    (dynamic._forward, _forward),
    (dynamic._backward, _backward),
    (inverted._sums, _sums),
    (inverted._backward, _sums_backward),
):
    _packet = _operator._opoverload.overloadpacket
    COSTS[_packet] = _cost
    _register(_packet, _cost)
register(em.moments, _moments, _moments_backward)
register(em.distances, _distances, _distances_backward)
