"""What the fused operators cost: FLOPs and memory that nobody outside them can see.

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

The workspace is what an operator holds beside its arguments and its results at its fullest: the
children once more, lane by lane, their gradient in the same order, and a few tiles.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from torchcaps.ops.fused import distance, dynamic, em, inverted, self_attention
from torchcaps.ops.fused.agreement import folds, tiled
from torchcaps.ops.fused.distance_tiles import Given
from torchcaps.ops.fused.tiles import TiledVotes, size_of, vote_map_of
from torchcaps.ops.operators import Asked, Operator
from torchcaps.types import VoteMap

__all__ = ["COSTS", "Cost", "register"]


class Cost(NamedTuple):
    """Of one call of an operator."""

    flops: int
    workspace: int  # bytes


class _Sizes(NamedTuple):
    """What the tiles of a vote map come to."""

    products: int  # FLOPs of making all votes
    summed: int  # the same after the children of a wide tile that share weights are summed
    folding: int  # and where parents are folded onto the children of a tile
    agreement: int  # FLOPs of one multiply-add a number of all votes
    children: int  # bytes
    couplings: int
    weight: int
    parents: int  # of the lanes that are done at once
    tile: int  # votes
    seen: int  # children of a tile
    wide: int  # children of a wide tile
    laid: int  # and its weights, laid out anew
    chunk: int  # what one convolution sees and gives
    folds: bool  # in dynamic routing votes are not made
    met: int  # FLOPs of one multiply-add a number of the children of all parents
    folded: int  # bytes of those of a tile


def _sizes(
    pose: Tensor,
    weight: Tensor,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
    vote_bias: Tensor | None = None,
    coordinates: Tensor | None = None,
    tiled: Callable[[VoteMap, torch.dtype], TiledVotes] = TiledVotes,
) -> _Sizes:
    # On "meta" the tiles are laid out and nothing is copied.
    bias, places = (None if x is None else x.to("meta") for x in (vote_bias, coordinates))
    vote_map = vote_map_of(pose.to("meta"), weight.to("meta"), bias, places, sharing, kind, window)
    votes = tiled(vote_map, dtype)
    lanes = next(votes.lanes(), None)
    tile = None if lanes is None else next(votes.tiles(lanes), None)
    numbers = votes.n_batch * votes.n_windows * votes.n_in * votes.n_out * votes.d_out
    a_tile = a_part = some = a_wide = laid = 0
    parts = wide_parts = 1
    if lanes is not None and tile is not None:
        many = size_of(tile.types) * size_of(tile.positions)
        parts = math.ceil(votes.positions / size_of(tile.positions))
        wide = next(votes.wide_tiles(lanes))
        wide_parts = math.ceil(votes.positions / size_of(wide.positions))
        laid = size_of(wide.types) * votes.weight[0].numel() * dtype.itemsize
        a_wide = size_of(wide.types) * size_of(wide.positions) * votes.count(lanes)
        a_wide *= votes.d_in * dtype.itemsize
        a_part = many * votes.count(lanes) * dtype.itemsize
        a_tile = a_part * votes.n_out * votes.d_out
        some = votes.count(lanes) * votes.n_out * votes.d_out * dtype.itemsize
    image = votes.n_children * votes.d_in * dtype.itemsize
    given = votes.n_windows * votes.n_out * votes.d_out * dtype.itemsize
    one = 2 * numbers * votes.k // max(1, votes.positions)
    return _Sizes(
        products=2 * numbers * votes.k,
        summed=one * wide_parts,
        folding=one * parts,
        agreement=2 * numbers,
        children=votes.n_batch * image,
        couplings=numbers // votes.d_out * dtype.itemsize,
        weight=weight.numel() * dtype.itemsize,
        parents=some,
        tile=a_tile,
        seen=a_part * votes.k * votes.rows,
        wide=a_wide,
        laid=laid,
        chunk=min(votes.n_batch, max(1, inverted.CHUNK_BYTES // max(1, image))) * (image + given),
        folds=folds(votes),
        met=2 * numbers * votes.d_in // max(1, votes.d_out),
        folded=a_part * votes.n_out * votes.d_in,
    )


def _dynamic(pose: Tensor, weight: Tensor, *arguments: Any) -> Cost:
    vote_bias, coordinates, _, prior, sharing, kind, window, dtype, iterations, *_ = arguments
    size = _sizes(pose, weight, sharing, kind, window, dtype, vote_bias, coordinates, tiled)
    if size.folds:
        return _folded(size, iterations, prior is not None)
    # Without a prior the first iteration is one product; with one it has yet nothing to agree with.
    flops = size.summed if prior is None else size.products + size.agreement
    flops += (iterations - 1) * (size.products + 2 * size.agreement)
    tiles = 2 * size.tile if iterations > 1 or prior is not None else 0
    return Cost(flops, size.children + tiles + size.seen + 4 * size.parents)


def _dynamic_backward(
    of_poses: Tensor | None,
    of_couplings: Tensor | None,
    sums: Tensor,
    pose: Tensor,
    weight: Tensor,
    *arguments: Any,
) -> Cost:
    vote_bias, coordinates, _, prior, sharing, kind, window, dtype, *_, detach, needs = arguments
    size = _sizes(pose, weight, sharing, kind, window, dtype, vote_bias, coordinates, tiled)
    if size.folds:
        return _folded_backward(size, len(sums), prior is not None, detach, needs)
    wanted = needs[0] + needs[1]
    deep = any(needs[:4]) or any(needs[4:]) if detach == "none" else any(needs[4:])
    count = len(sums) if deep and detach in ("none", "votes") else 1
    flops = 0
    for back in range(count):
        first = back == len(sums) - 1
        mixes = back == 0 or detach != "votes"
        if first and prior is None:
            flops += size.summed * wanted if mixes else 0
            continue
        # c and the gradient of the logits; then that of A, of the votes, and of what they are of.
        flops += size.products + (1 if first else 2) * size.agreement
        flops += size.agreement if deep and not first else 0
        if any(needs[:4]):
            outer = mixes + (not first and detach in ("none", "states"))
            flops += outer * size.agreement + (wanted * size.products if outer else 0)
    tiles = 3 * size.tile if len(sums) > 1 or prior is not None else 0
    tiles += 2 * size.seen + (len(sums) + 4) * size.parents
    return Cost(flops, _held(size, needs[0], tiles))


def _folded(size: _Sizes, iterations: int, has_prior: bool) -> Cost:
    # Agreeing and mixing are a product and a multiplication each.
    often = 2 * (iterations - 1) + has_prior
    flops = often * (size.folding + size.met) + (0 if has_prior else size.summed)
    tiles = (size.folded if often else 0) + (0 if has_prior else size.wide + size.laid)
    return Cost(flops, size.children + tiles + size.seen + 4 * size.parents)


def _folded_backward(
    size: _Sizes, iterations: int, has_prior: bool, detach: str, needs: Sequence[bool]
) -> Cost:
    wants_votes, wants_before = needs[0] or needs[1], needs[4] or needs[5]
    summed = products = met = 0
    for t in reversed(range(iterations)):
        last, first = t == iterations - 1, t == 0
        if first and not has_prior:
            summed += (needs[0] + needs[1]) * (last or detach != "votes")
            continue
        mixes = wants_votes and (last or detach != "votes")
        agrees = wants_votes and not first and detach in ("none", "states")
        goes_back = {"none": wants_votes or wants_before, "votes": wants_before}.get(detach, False)
        goes_back = goes_back and not first
        of_logits = goes_back or agrees or (needs[5] and detach != "coupling")
        asked = (not first) + of_logits + goes_back
        terms = mixes + agrees
        products += asked + (needs[0] + needs[1]) * terms
        met += asked + needs[1] * (terms - (goes_back and agrees)) + needs[0] * terms
        if not goes_back:
            break
    tiles = 2 * size.folded if iterations > 1 or has_prior else 0
    tiles += size.wide + size.laid if summed else 0
    tiles += 2 * size.seen + (iterations + 4) * size.parents
    flops = summed * size.summed + products * size.folding + met * size.met
    return Cost(flops, _held(size, needs[0], tiles))


def _moments(given: em.Shared) -> Cost:
    size = _sizes_of(given.votes)
    return Cost(2 * size.products, size.children + 3 * size.tile + size.seen + 4 * size.parents)


def _moments_backward(asked: Asked[em.Shared]) -> Cost:
    size, needs = _sizes_of(asked.given.votes), asked.needs
    tiles = 6 * size.tile + 2 * size.seen + 4 * size.parents
    products = size.products * (1 + needs[1] + needs[2])
    return Cost(products, _held(size, needs[1], tiles))


def _distances(given: em.Met) -> Cost:
    size = _sizes_of(given.votes)
    return Cost(size.products, size.children + 2 * size.tile + size.seen + 2 * size.parents)


def _distances_backward(asked: Asked[em.Met]) -> Cost:
    size, needs = _sizes_of(asked.given.votes), asked.needs
    tiles = 5 * size.tile + 2 * size.seen + 4 * size.parents
    products = size.products * (1 + needs[2] + needs[3])
    return Cost(products, _held(size, needs[2], tiles))


def _sums(parents: Tensor | None, *arguments: Any) -> Cost:
    *made_of, _, _ = arguments
    size, through = _sizes_of(made_of), bool(made_of[6])
    if parents is not None:
        held = size.children + 2 * size.tile + size.seen + 2 * size.parents
        return Cost(size.products + 2 * size.agreement, held)
    if through:
        return Cost(size.products, 2 * size.weight + size.chunk)
    return Cost(size.summed, size.children + size.wide + size.laid + 2 * size.parents)


def _sums_backward(
    of_sums: Tensor | None, of_couplings: Tensor | None, parents: Tensor | None, *arguments: Any
) -> Cost:
    *made_of, _, needs = arguments
    size, through = _sizes_of(made_of), bool(made_of[6])
    wanted = needs[1] + needs[2]
    if parents is not None:
        flops = size.products * (1 + wanted) + (3 + 2 * any(needs[1:])) * size.agreement
        tiles = 3 * size.tile + 2 * size.seen + 2 * size.parents
        return Cost(flops, _held(size, needs[1], tiles))
    if through:
        return Cost(size.products * wanted, 4 * size.weight + 2 * size.chunk)
    tiles = 3 * size.wide + 2 * size.parents
    return Cost(size.summed * wanted, _held(size, needs[1], tiles))


def _measured(given: Given) -> Cost:
    size, updates = _sizes_of(given.votes), given.how.iterations - 1
    # Votes are measured, then mixed; shortened ones in the first iteration too.
    agreements = 1 + (1 + given.how.with_slopes) * updates
    flops = (1 + 2 * updates) * size.products + agreements * size.agreement
    # How much a vote is shortened, and how far it lies.
    held = (2 if updates else 1) * size.couplings
    return Cost(flops, size.children + held + 2 * size.tile + size.seen + 4 * size.parents)


def _measured_backward(asked: Asked[Given]) -> Cost:
    size, needs, (sums, slopes, _) = _sizes_of(asked.given.votes), asked.needs, asked.saved
    of_couplings = asked.gradients[-1]
    added, wanted = any(needs[:5]), needs[0] + needs[1]
    every = added and asked.given.how.detach == "none"
    goes_back, flops = every or any(needs[5:]), 0
    for back in range(len(sums)):
        first, mixes = back == len(sums) - 1, every or (added and back == 0)
        if not mixes and (first or not goes_back):
            continue
        flops += size.products
        if of_couplings is not None and back < len(of_couplings) and not first:
            flops += size.products if goes_back and len(slopes) else 0
        flops += size.agreement if goes_back and not first else 0
        if mixes:
            flops += wanted * size.products + size.agreement
    return Cost(flops, _held(size, needs[0], 3 * size.tile + 2 * size.seen + 6 * size.parents))


def _attended(pose: Tensor, weight: Tensor, *arguments: Any) -> Cost:
    *_, sharing, kind, window, dtype, _ = arguments
    size = _sizes(pose, weight, sharing, kind, window, dtype)
    flops = size.summed + size.products + 2 * size.agreement
    return Cost(flops, size.children + 2 * size.tile + size.seen + 4 * size.parents)


def _attended_backward(
    of_sums: Tensor | None,
    of_couplings: Tensor | None,
    sums: Tensor,
    pose: Tensor,
    weight: Tensor,
    *arguments: Any,
) -> Cost:
    *_, sharing, kind, window, dtype, needs = arguments
    size, wanted = _sizes(pose, weight, sharing, kind, window, dtype), needs[0] + needs[1]
    flops = size.products + size.agreement
    if any(needs[:4]):
        # Couplings, the gradient of T, and two terms of that of the votes.
        flops += 4 * size.agreement + wanted * (size.products + size.summed)
    return Cost(flops, _held(size, needs[0], 3 * size.tile + 2 * size.seen + 4 * size.parents))


def _sizes_of(made_of: Sequence[Any]) -> _Sizes:
    """Of the arguments that EM and inverted routing share."""
    pose, weight, *_, sharing, kind, window, dtype = made_of
    return _sizes(pose, weight, sharing, kind, window, dtype)


def _held(size: _Sizes, needs_pose: bool, tiles: int) -> int:
    """Of a backward pass. The gradient of the children is copied out when the tiles are gone."""
    return size.children + (max(size.children, tiles) if needs_pose else tiles)


# One line an operator.
COSTS: dict[Any, Callable[..., Cost]] = {
    operator._opoverload.overloadpacket: cost
    for operator, cost in (
        (dynamic._forward, _dynamic),
        (dynamic._backward, _dynamic_backward),
        (inverted._sums, _sums),
        (inverted._backward, _sums_backward),
        (self_attention._forward, _attended),
        (self_attention._backward, _attended_backward),
    )
}


def _register(operator: Any, cost: Callable[..., Cost]) -> None:
    @register_flop_formula(operator, get_raw=True)
    def flops(*arguments: Any, out_val: object = None, **_: object) -> int:
        return cost(*arguments).flops


for _operator, _cost in COSTS.items():
    _register(_operator, _cost)


def register(
    operator: Operator[Any, Any],
    forward: Callable[[Any], Cost],
    backward: Callable[[Asked[Any]], Cost] | None = None,
) -> None:
    """Have an operator and its backward pass, where that is an operator too, cost so much."""
    calls = [(operator.forward, operator.given, forward)]
    if backward is not None:
        calls.append((operator.backward, operator.asked, backward))
    for overload, unpacked, cost in calls:
        packet = overload.overloadpacket
        COSTS[packet] = _of_flat(unpacked, cost)
        _register(packet, COSTS[packet])


def _of_flat(unpacked: Callable[..., Any], cost: Callable[[Any], Cost]) -> Callable[..., Cost]:
    return lambda *flat: cost(unpacked(*flat))


register(distance.measured, _measured, _measured_backward)
register(em.moments, _moments, _moments_backward)
register(em.distances, _distances, _distances_backward)
