"""What the Triton operators cost.

The workspace is what kernels hand to each other: parents of every iteration, their partial sums,
and where a tile does not have all parents, three numbers of every child and sample; of gradients,
the partial sums of weights that several programs share, those of a vote bias, and of poses one for
every window that sees them.
"""

from collections.abc import Sequence

from torchcaps.ops.costs import em as flops_of
from torchcaps.ops.costs.base import Cost, register
from torchcaps.ops.costs.loop import loop_flops
from torchcaps.ops.fused.em import Met, Shared
from torchcaps.ops.fused.loop import Given, visits
from torchcaps.ops.fused.tiles import MadeOf
from torchcaps.ops.operators import Asked
from torchcaps.ops.triton import em, mixing
from torchcaps.ops.triton.votes import CHILDREN, blocks_of, shape_of, shared_out

__all__: list[str] = []


class _Sizes:
    """FLOPs of all votes, of the same after the children that share weights are summed, and of one
    multiply-add for each of their numbers; how often votes are made for one softmax; bytes."""

    def __init__(self, votes: MadeOf):
        shape, window = shape_of(votes), votes.window
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
        self.of_weight = 4 * splits * votes.weight.numel() if splits > 1 else 0
        self.of_vote_bias = 4 * splits * shape.types * shape.parents * shape.size
        size = votes.pose.shape[-1]
        self.of_slots = 4 * shape.batch * shape.children * size if window else 0

    @property
    def total(self) -> int:
        return self.summed

    def asked(self, times: int) -> int:
        return self.made * self.products + (times + self.made - 1) * self.agreement

    def handed_on(self, terms: int, needs: Sequence[bool], known: bool) -> int:
        return terms * self.agreement + (needs[0] + needs[1]) * self.products

    def gradients(self, needs: Sequence[bool]) -> int:
        """Bytes held for those of pose, weight and vote bias."""
        held = (self.of_slots, self.of_weight, self.of_vote_bias)
        return sum(size for size, need in zip(held, needs, strict=True) if need)


def _mixed(given: Given) -> Cost:
    sizes = _Sizes(given.made_of)
    return Cost(loop_flops(given, sizes), 2 * sizes.parents + sizes.partial + sizes.found)


def _mixed_backward(asked: Asked[Given]) -> Cost:
    sizes, needs = _Sizes(asked.given.made_of), asked.needs
    flops = held = noted = terms = 0
    for visit in visits(asked):
        # Queries have their gradient first.
        if visit.to_query:
            flops += sizes.asked(3) + (sizes.made - 1) * sizes.agreement
            held = sizes.partial
        noted += visit.mixes or visit.agrees or visit.to_prior or visit.to_added
        terms += (visit.has_query + visit.to_logits + visit.mixes + visit.agrees) * visit.goes_on
    if noted:
        flops += (1 + needs[0] + needs[1]) * sizes.products + terms * sizes.agreement
    held += 2 * (noted + asked.given.loop.iterations) * sizes.parents + 2 * noted * sizes.found
    return Cost(flops, held + sizes.gradients(needs[:3]))


def _moments(given: Shared) -> Cost:
    sizes = _Sizes(given.votes)
    return Cost(flops_of.moments(sizes.products), 2 * sizes.partial + sizes.parents)


def _moments_backward(asked: Asked[Shared]) -> Cost:
    sizes, needs = _Sizes(asked.given.votes), asked.needs
    held = 2 * sizes.parents + sizes.of_slots * needs[1] + sizes.of_weight * needs[2]
    return Cost(flops_of.moments_backward(sizes.products, needs[1:]), held)


def _distances(given: Met) -> Cost:
    sizes = _Sizes(given.votes)
    return Cost(flops_of.distances(sizes.products), sizes.parents)


def _distances_backward(asked: Asked[Met]) -> Cost:
    sizes, needs = _Sizes(asked.given.votes), asked.needs
    held = 2 * (sizes.partial + sizes.parents)
    held += sizes.of_slots * needs[2] + sizes.of_weight * needs[3]
    passes = 1 + any(needs[2:])
    return Cost(flops_of.distances_backward(sizes.products, needs[2:], passes), held)


register(mixing.by_kernels, _mixed, _mixed_backward)
register(em.moments, _moments, _moments_backward)
register(em.distances, _distances, _distances_backward)
