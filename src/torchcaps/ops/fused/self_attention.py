"""Self-attention routing from a vote map: the votes are made tile by tile, in both passes, never
stored.

The algorithm, its papers, its options and its ambiguities are those of
`ops.self_attention_routing`. With T_j = Σ_i û_ij, one product, and r_ij = ⟨û_ij, T_j⟩ / √D,

    c_ij = softmax_j(r_ij) + bias_ij,     s_j = Σ_i c_ij û_ij,     v_j = g(s_j)

Backwards, from γ_j, the gradient of s_j, and κ_ij, that of c_ij where it was recorded, with
a_ij = softmax_j(r_ij),

    h_ij  = ⟨û_ij, γ_j⟩ + κ_ij = ∂bias_ij,   β_ij = a_ij (h_ij − Σ_k a_ik h_ik) / √D
    ∂û_ij = c_ij γ_j + β_ij T_j + ∂T_j,      ∂T_j = Σ_i β_ij û_ij

Departures: half precision votes are not rounded before they are routed, as a vote tensor is; they
are made in float32, and only parents and couplings are rounded.
Ambiguities: none.

Kept are the children, the weights, T and s, parents only. No gradient of the gradient.
"""

import math
from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from torchcaps.ops.checks import (
    check_broadcast,
    check_choice,
    check_keep,
    check_votes,
    widen,
    without_autocast,
)
from torchcaps.ops.fused.agreement import along
from torchcaps.ops.fused.dynamic import by_lane, outputs
from torchcaps.ops.fused.tiles import Tile, TiledVotes, VoteGradients, vote_like, vote_map_of
from torchcaps.ops.gradients import listed, once, shapes_listed, wanted
from torchcaps.ops.routing.common import capsules
from torchcaps.ops.squash import Squash
from torchcaps.ops.squash import squash as g
from torchcaps.types import Keep, Routed, Step, VoteMap

__all__ = ["self_attention_routing"]


def self_attention_routing(
    vote_map: VoteMap,
    *,
    bias: Tensor | None = None,
    squash: Squash = "exp",
    keep: Keep = "none",
) -> Routed:
    """Route the votes of a vote map to parents [*b, j, d], or [*b, p, j, d] through a window, with
    the values and gradients of `ops.self_attention_routing` of the materialised votes.

    >>> from torchcaps import Capsules
    >>> vote_map = VoteMap(Capsules(torch.ones(16, 8)), torch.ones(16, 10, 16, 8))
    >>> self_attention_routing(vote_map).parents.pose.shape
    torch.Size([10, 16])
    """
    votes = _checked(vote_map, bias, squash, keep)
    *_, n_in, n_out, size = votes.shape
    # Of one number: `votes` stands for more than there is memory.
    wide = widen(votes.new_empty(())).dtype
    vote_bias, coordinates, window = vote_map.bias, vote_map.coordinates, vote_map.window
    sums, couplings = _forward(
        vote_map.children.pose,
        vote_map.weight,
        None if vote_bias is None else vote_bias.to(wide).expand(n_out, size),
        None if coordinates is None else coordinates.to(wide).expand(n_in, size),
        None if bias is None else by_lane(bias.to(wide), votes[..., 0], window),
        vote_map.sharing,
        vote_map.pose,
        [] if window is None else [*window.child_grid, *window.kernel, *window.stride],
        wide,
        keep != "none",
    )
    return _finished(votes, sums[1], couplings, squash, keep)


def _checked(vote_map: VoteMap, bias: Tensor | None, squash: str, keep: str) -> Tensor:
    """A tensor like the votes would be."""
    votes = vote_like(vote_map)
    check_votes(votes)
    check_keep(keep)
    check_broadcast("bias", bias, votes.shape[:-1], "[*batch, child, parent]")
    check_choice("squash", squash, get_args(Squash))
    return votes


def _finished(votes: Tensor, s: Tensor, couplings: Tensor, squash: Squash, keep: Keep) -> Routed:
    """From s [b, p, j, d] and, if kept, c [b, p, i, j], or the same with axes of one before."""
    *lead, n_in, n_out, size = votes.shape
    with without_autocast(votes):
        v = g(s.reshape(*lead, n_out, size), squash)
    parents = capsules(v, votes.dtype)
    if keep == "none":
        return Routed(parents)
    coupling = couplings.reshape(*lead, n_in, n_out).to(votes.dtype)
    return Routed(parents, (Step(None, coupling, parents),))


def _forward_kernel(
    pose: Tensor,
    weight: Tensor,
    vote_bias: Tensor | None,
    coordinates: Tensor | None,
    bias: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
    kept: bool,
) -> tuple[Tensor, Tensor]:
    """T and s [2, b, p, j, d] and, if kept, c [1, b, p, i, j]."""
    vote_map = vote_map_of(pose, weight, vote_bias, coordinates, sharing, kind, window)
    with without_autocast(pose):
        votes = TiledVotes(vote_map, dtype)
        many, counts = (votes.n_batch, votes.n_windows), (votes.n_in, votes.n_out, votes.d_out)
        sums, couplings = _made(votes.children, many, counts, kept)
        for lanes in votes.lanes():
            total, s = votes.total(lanes), votes.parents(lanes)
            for tile in votes.tiles(lanes):
                part = votes.votes(tile, votes.seen(tile))  # [t, j, d, p, b]
                c = _biased(votes, tile, _shares(part, total), bias)
                if kept:
                    there = votes.of_couplings(couplings[0].transpose(0, 1), tile)
                    there.copy_(votes.by_lane(c, lanes))
                s += part.mul_(c.unsqueeze(2)).sum((0, 3))
            for record, parents in zip(sums, (total, s), strict=True):
                record.transpose(0, 1)[lanes] = votes.from_lanes(parents, lanes)
    return sums, couplings


def _made(
    like: Tensor, lanes: tuple[int, int], counts: tuple[int, int, int], kept: bool
) -> tuple[Tensor, Tensor]:
    """What the forward pass fills."""
    sums, _, couplings = outputs(like, lanes, counts, 2, "last" if kept else "none")
    return sums, couplings


def _shares(part: Tensor, total: Tensor) -> Tensor:
    """softmax_j of ⟨û_ij, T_j⟩ / √D, [t, j, p, b]."""
    return along(part, total).div_(math.sqrt(part.shape[2])).softmax(1)


def _biased(votes: TiledVotes, tile: Tile, shares: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return shares
    return (votes.by_lane(shares, tile.lanes) + votes.of_couplings(bias, tile)).flatten(-2)


def _backward_kernel(
    of_sums: Tensor | None,
    of_couplings: Tensor | None,
    sums: Tensor,
    pose: Tensor,
    weight: Tensor,
    vote_bias: Tensor | None,
    coordinates: Tensor | None,
    bias: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the five tensors, empty where there is no need. Nobody asks for that of T."""
    vote_map = vote_map_of(pose, weight, vote_bias, coordinates, sharing, kind, window)
    of_bias = None
    with without_autocast(pose):
        votes = TiledVotes(vote_map, dtype)
        found = VoteGradients(votes, *needs[:4])
        if bias is not None and needs[4]:
            of_bias = votes.children.new_zeros(bias.shape)
        of_s = torch.zeros_like(sums[1]) if of_sums is None else of_sums[1]
        for lanes in votes.lanes():
            total, of_sum = (votes.to_lanes(x.transpose(0, 1)[lanes]) for x in (sums[0], of_s))
            of_total = votes.parents(lanes)
            for tile in votes.tiles(lanes):
                seen = votes.seen(tile)
                part = votes.votes(tile, seen)  # [t, j, d, p, b]
                of_c = along(part, of_sum)
                if of_couplings is not None:
                    kappa = votes.of_couplings(of_couplings[0].transpose(0, 1), tile)
                    of_c += kappa.flatten(-2)
                if of_bias is not None:
                    mine = votes.of_couplings(of_bias, tile)
                    mine += votes.by_lane(of_c, lanes).sum_to_size(mine.shape)
                if not found.any:
                    continue
                a = _shares(part, total)
                of_logits = a * (of_c - (a * of_c).sum(1, keepdim=True))
                of_logits = of_logits.div_(math.sqrt(votes.d_out)).unsqueeze(2)
                of_total += (part * of_logits).sum((0, 3))
                # The votes have served; their memory takes their gradient.
                c = _biased(votes, tile, a, bias).unsqueeze(2)
                torch.mul(c, of_sum.unsqueeze(-2), out=part)
                found.add(tile, seen, part.addcmul_(of_logits, total.unsqueeze(-2)))
            if found.any:
                found.add_to_total(lanes, of_total)
        gradients = [*found.of(vote_map), of_bias]
    return listed(gradients, sums)


_forward = torch.library.custom_op(
    "torchcaps::self_attention_routing", _forward_kernel, mutates_args=()
)
_backward = torch.library.custom_op(
    "torchcaps::self_attention_routing_backward", _backward_kernel, mutates_args=()
)


@_forward.register_fake
def _forward_shapes(pose: Tensor, weight: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    *_, sharing, kind, window, dtype, kept = arguments
    like = vote_like(vote_map_of(pose, weight, None, None, sharing, kind, window))
    *lead, n_in, n_out, size = like.shape
    lanes = (math.prod(lead), 1) if not window else (math.prod(lead[:-1]), lead[-1])
    return _made(pose.to(dtype), lanes, (n_in, n_out, size), kept)


@_backward.register_fake
def _backward_shapes(*arguments: Any) -> list[Tensor]:
    return shapes_listed(arguments[3:8], arguments[-1], arguments[2])


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[0], *inputs[:5])
    ctx.options = inputs[5:]


def _differentiate(ctx: Any, *of_outputs: Tensor | None) -> tuple[Any, ...]:
    needs = list(ctx.needs_input_grad[:5])
    gradients = _backward(*of_outputs, *ctx.saved_tensors, *ctx.options[:-1], needs)
    return wanted(ctx, gradients, needs)


_forward.register_autograd(_differentiate, setup_context=_keep_for_backward)
once(_backward, "fused self-attention routing", "self_attention_routing")
