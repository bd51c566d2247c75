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

from torchcaps.ops.costs import distance as distance_flops
from torchcaps.ops.costs import em as flops_of
from torchcaps.ops.costs.base import Cost, register
from torchcaps.ops.fused.distance_tiles import Given
from torchcaps.ops.fused.tiles import MadeOf
from torchcaps.ops.native import distance, dynamic, em
from torchcaps.ops.native.windows import PLACES
from torchcaps.ops.operators import Asked

__all__: list[str] = []

# Of dynamic.cpp: bytes of a tile of children or of their weights, and how many it has at least.
TILE_BYTES, FEWEST = 192 << 10, 16


def _sizes_of(votes: MadeOf) -> tuple[int, int, int, int]:
    """FLOPs of all votes and of one multiply-add for each of their numbers; bytes of the children
    and of the parents."""
    batch, _, n_in, n_out, size = votes.counts()
    inner = votes.weight.shape[-2 if votes.kind == "matrix" else -1]
    agreement = 2 * batch * n_in * n_out * size
    return agreement * inner, agreement, 4 * votes.pose.numel(), 4 * batch * n_out * size


def _forward(given: dynamic.Given) -> Cost:
    votes, iterations, prior = given.votes, given.how.iterations, given.prior
    products, agreement, _, parents = _sizes_of(votes)
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
    products, agreement, _, parents = _sizes_of(votes)
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
    products, agreement, children, parents = _sizes_of(given.votes)
    # Votes are measured, then mixed; where the mean distance is given, mixed alone.
    flops = distance_flops.forward(given, products, agreement, 2 if given.scale is None else 1)
    threads = torch.get_num_threads()
    return Cost(flops, children + (1 + (1 + given.how.with_slopes) * threads) * parents)


def _measured_backward(asked: Asked[Given]) -> Cost:
    products, agreement, children, parents = _sizes_of(asked.given.votes)
    needs, iterations = asked.needs, len(asked.saved[0])
    measured, mixed, recorded = distance_flops.back(asked)
    made, met = measured + recorded, measured
    if mixed:
        # Once for couplings, where these are not equal, and once for gradients.
        made += (iterations > 1) + 1 + needs[0] + needs[1]
        met += 2 * mixed - 1
    held = (2 * iterations + torch.get_num_threads()) * parents
    return Cost(made * products + met * agreement, children + held)


class _Lanes(NamedTuple):
    """FLOPs of all votes of EM routing, and bytes of the lanes that a thread has at once."""

    products: int  # FLOPs of making all votes
    children: int
    slots: int  # one number of each
    couplings: int
    parents: int  # one number of each component
    window: bool


def _lanes(votes: MadeOf) -> _Lanes:
    samples, windows, slots, n_out, size = votes.counts()
    weight, window = votes.weight, bool(votes.window)
    count, lanes, d_in = samples * windows, PLACES, votes.pose.shape[-1]
    inner = weight.shape[-2 if votes.kind == "matrix" else -1]
    return _Lanes(
        products=2 * count * slots * n_out * size * inner,
        children=4 * lanes * slots * d_in,
        slots=4 * lanes * slots,
        couplings=4 * lanes * slots * n_out,
        parents=4 * lanes * n_out * size,
        window=window,
    )


def _fit(given: em.Weighed) -> Cost:
    size = _lanes(given.votes)
    shares = size.couplings if given.log_r is not None else 0
    held = size.children + size.slots + shares + 3 * size.parents
    return Cost(flops_of.moments(size.products), _threads(given.votes) * held)


def _assign(given: em.Compared) -> Cost:
    size = _lanes(given.met.votes)
    held = size.slots + 2 * size.parents
    return Cost(flops_of.distances(size.products), _threads(given.met.votes) * held)


def _fit_backward(asked: Asked[em.Weighed]) -> Cost:
    return _lanes_backward(asked.given.votes, asked.needs[2:])


def _assign_backward(asked: Asked[em.Compared]) -> Cost:
    return _lanes_backward(asked.given.met.votes, asked.needs[3:])


def _lanes_backward(votes: MadeOf, needs: Sequence[bool]) -> Cost:
    size, threads, pose = _lanes(votes), _threads(votes), votes.pose
    apart = threads * pose[0].numel() * 4 if needs[0] and size.window and len(pose) else 0
    apart += (threads - 1) * votes.weight.numel() * 4 if needs[1] else 0
    held = 2 * size.slots + 4 * size.parents
    return Cost(flops_of.moments_backward(size.products, needs), threads * held + apart)


def _threads(votes: MadeOf) -> int:
    """That share out lanes."""
    lanes = math.prod(votes.counts()[:2])
    return max(1, min(torch.get_num_threads(), math.ceil(lanes / PLACES)))


register(dynamic.mixed, _forward, _backward)
register(distance.measured, _measured, _measured_backward)
register(em.fit, _fit, _fit_backward)
register(em.assign, _assign, _assign_backward)
