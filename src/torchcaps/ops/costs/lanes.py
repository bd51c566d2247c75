"""What the native operators cost.

The workspace of distance routing is the children once more, parents of every iteration, those that
each thread sums by itself, and couplings of a few children; that of dynamic routing has tiles of
children, and where weights have a gradient parents twice. That of EM
routing is what a thread holds of the few lanes that it has at once, and gradients that each sums by
itself.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.ops.costs import em as flops_of
from torchcaps.ops.costs.base import Cost, register
from torchcaps.ops.costs.loop import loop_backward_flops, loop_flops
from torchcaps.ops.fused.distance_tiles import Given
from torchcaps.ops.fused.loop import Given as Looped
from torchcaps.ops.fused.tiles import MadeOf
from torchcaps.ops.native import distance, dynamic, em, mixing
from torchcaps.ops.native.windows import PLACES
from torchcaps.ops.operators import Asked

__all__: list[str] = []

# Of dynamic.cpp: bytes of a tile of children or of their weights, and how many it has at least.
TILE_BYTES, FEWEST = 192 << 10, 16


def _sizes(pose: Tensor, weight: Tensor, kind: str) -> tuple[int, int, int, int]:
    """FLOPs of all votes and of one multiply-add for each of their numbers; bytes of the children
    and of the parents."""
    (batch, n_in, d_in), n_out = pose.shape, weight.shape[-3]
    size, inner = (d_in, weight.shape[-2]) if kind == "matrix" else weight.shape[-2:]
    agreement = 2 * batch * n_in * n_out * size
    return agreement * inner, agreement, 4 * pose.numel(), 4 * batch * n_out * size


def _forward(given: dynamic.Given) -> Cost:
    votes, iterations, prior = given.votes, given.how.iterations, given.prior
    products, agreement, _, parents = _sizes(votes.pose, votes.weight, votes.kind)
    routed = iterations - (prior is None)
    threads = torch.get_num_threads()
    flops = iterations * products + (2 * routed - (prior is not None)) * agreement
    return Cost(flops, _tiles(votes.pose, votes.weight) + (1 + threads) * parents)


def _tiles(pose: Tensor, weight: Tensor) -> int:
    """Bytes of the children that all threads have in lanes at once."""
    batch, n_in, d_in = pose.shape
    largest = 4 * max(batch * d_in, weight.shape[-3:].numel(), 1)
    some = min(n_in, max(FEWEST, TILE_BYTES // largest))
    return 4 * torch.get_num_threads() * some * batch * d_in


def _backward(asked: Asked[dynamic.Given]) -> Cost:
    votes, needs, (sums, kept) = asked.given.votes, asked.needs, asked.saved
    pose, weight, detach = votes.pose, votes.weight, asked.given.how.detach
    products, agreement, _, parents = _sizes(pose, weight, votes.kind)
    iterations = len(sums)
    deep = detach == "none" or (detach == "votes" and any(needs[4:]))
    # Back through the iterations, each with its couplings and the gradient of its logits.
    back = iterations - 1 if deep else 0
    flops = back * (products + 3 * agreement)
    if any(needs[:4]):
        terms = iterations if deep or detach in ("states", "coupling") else 1
        again = not (kept.numel() and not any(needs[4:]))
        flops += (again + needs[0] + needs[1]) * products + (1 + 2 * again) * terms * agreement
    # Twice all parents for the weights, if these may have them in the order of the samples.
    held = (2 * iterations * (1 + needs[1]) + 1 + torch.get_num_threads()) * parents
    return Cost(flops, _tiles(pose, weight) + held)


def _measured(given: Given) -> Cost:
    votes, how = given.votes, given.how
    products, agreement, children, parents = _sizes(votes.pose, votes.weight, votes.kind)
    updates = how.iterations - 1
    # Votes are measured, then mixed; where the mean distance is given, mixed alone.
    made = 1 + updates * (2 if given.scale is None else 1)
    flops = made * products + (1 + (1 + how.with_slopes) * updates) * agreement
    return Cost(flops, children + (1 + (1 + how.with_slopes) * torch.get_num_threads()) * parents)


def _measured_backward(asked: Asked[Given]) -> Cost:
    votes, needs, (sums, slopes, _) = asked.given.votes, asked.needs, asked.saved
    of_couplings = asked.gradients[-1]
    products, agreement, children, parents = _sizes(votes.pose, votes.weight, votes.kind)
    iterations, added = len(sums), any(needs[:5])
    every = added and asked.given.how.detach == "none"
    # Back through the iterations, each with its couplings and the gradient of its distances.
    back = iterations - 1 if every or any(needs[5:]) else 0
    flops = back * (products + agreement)
    if len(slopes) and of_couplings is not None:
        flops += min(back, len(of_couplings)) * products
    if added:
        terms = iterations if every else 1
        routed = terms if iterations > terms else iterations - 1
        # Once for couplings, where these are not equal, and once for gradients.
        flops += (bool(routed) + 1 + needs[0] + needs[1]) * products
        flops += (terms + routed * every) * agreement
    held = (2 * iterations + torch.get_num_threads()) * parents
    return Cost(flops, children + held)


class _Lanes(NamedTuple):
    """What EM routing does in all, and bytes of the lanes that a thread has at once."""

    products: int  # FLOPs of making all votes
    agreements: int  # of comparing each with a vector
    children: int
    slots: int  # one number of each
    couplings: int
    parents: int  # one number of each component
    window: bool
    summed: int  # FLOPs of the sum of all votes

    @property
    def total(self) -> int:
        return self.summed

    def asked(self, times: int) -> int:
        # For what they agree with, and once more for what weighs them.
        return 2 * self.products + times * self.agreements

    def handed_on(self, terms: int, needs: Sequence[bool], known: bool) -> int:
        return terms * self.agreements + (needs[0] + needs[1]) * self.products


def _lanes(pose: Tensor, weight: Tensor, kind: str, window: Sequence[int]) -> _Lanes:
    (batch, slots, d_in), n_out, lanes = pose.shape, weight.shape[-3], PLACES
    size, inner = (d_in, weight.shape[-2]) if kind == "matrix" else weight.shape[-2:]
    count, kinds = batch, 1 if weight.ndim == 3 else len(weight)
    if window:
        height, width, types, k_h, k_w, s_h, s_w = window
        slots, count = k_h * k_w * types, batch * ((height - k_h) // s_h + 1)
        count *= (width - k_w) // s_w + 1
    return _Lanes(
        products=2 * count * slots * n_out * size * inner,
        agreements=2 * count * slots * n_out * size,
        children=4 * lanes * slots * d_in,
        slots=4 * lanes * slots,
        couplings=4 * lanes * slots * n_out,
        parents=4 * lanes * n_out * size,
        window=bool(window),
        summed=2 * count * n_out * size * inner * (slots if window else min(slots, kinds)),
    )


def _fit(given: em.Weighed) -> Cost:
    size = _lanes_of(given.votes)
    shares = size.couplings if given.log_r is not None else 0
    held = size.children + size.slots + shares + 3 * size.parents
    return Cost(flops_of.moments(size.products), _threads(given.log_a) * held)


def _assign(given: em.Compared) -> Cost:
    size = _lanes_of(given.met.votes)
    held = size.slots + 2 * size.parents
    return Cost(flops_of.distances(size.products), _threads(given.likely) * held)


def _fit_backward(asked: Asked[em.Weighed]) -> Cost:
    votes, size = asked.given.votes, _lanes_of(asked.given.votes)
    return _lanes_backward(
        size, _threads(asked.given.log_a), votes.pose, votes.weight, asked.needs[2:]
    )


def _assign_backward(asked: Asked[em.Compared]) -> Cost:
    votes, size = asked.given.met.votes, _lanes_of(asked.given.met.votes)
    return _lanes_backward(
        size, _threads(asked.given.likely), votes.pose, votes.weight, asked.needs[3:]
    )


def _lanes_of(votes: MadeOf) -> _Lanes:
    return _lanes(votes.pose, votes.weight, votes.kind, votes.window)


def _mixed(given: Looped) -> Cost:
    size = _lanes_of(given.made_of)
    held = _lane_threads(given.made_of) * (2 * size.parents + size.slots)
    return Cost(loop_flops(given, size), held + _first(given, 1))


def _mixed_backward(asked: Asked[Looped]) -> Cost:
    votes, size = asked.given.made_of, _lanes_of(asked.given.made_of)
    cost = _lanes_backward(size, _lane_threads(votes), votes.pose, votes.weight, asked.needs)
    parents = asked.given.loop.iterations * size.parents // PLACES * math.prod(votes.counts()[:2])
    held = cost.workspace + parents + _first(asked.given, 2)
    return Cost(loop_backward_flops(asked, size), held)


def _first(given: Looped, times: int) -> int:
    """Bytes of children that the sum of all votes holds once more; a convolution copies few."""
    return 0 if given.made_of.window else times * 4 * given.made_of.pose.numel()


def _lane_threads(votes: MadeOf) -> int:
    lanes = math.prod(votes.counts()[:2])
    return max(1, min(torch.get_num_threads(), math.ceil(lanes / PLACES)))


def _lanes_backward(
    size: _Lanes, threads: int, pose: Tensor, weight: Tensor, needs: Sequence[bool]
) -> Cost:
    apart = threads * pose[0].numel() * 4 if needs[0] and size.window and len(pose) else 0
    apart += (threads - 1) * weight.numel() * 4 if needs[1] else 0
    held = 2 * size.slots + 4 * size.parents
    return Cost(flops_of.moments_backward(size.products, needs), threads * held + apart)


def _threads(like: Tensor) -> int:
    """That share out lanes, of which `like` has its first two axes."""
    return max(1, min(torch.get_num_threads(), math.ceil(math.prod(like.shape[:2]) / PLACES)))


register(dynamic.mixed, _forward, _backward)
register(distance.measured, _measured, _measured_backward)
register(mixing.by_kernel, _mixed, _mixed_backward)
register(em.fit, _fit, _fit_backward)
register(em.assign, _assign, _assign_backward)
