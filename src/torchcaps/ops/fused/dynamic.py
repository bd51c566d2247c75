"""Dynamic routing from a vote map: the votes are made tile by tile, in both passes, never stored.

The algorithm, its papers and its options are those of `ops.dynamic_routing`. With
A_t = α Σ_{τ<t} v_τ

    c_ij = softmax_j(prior_ij + ⟨û_ij, A_tj⟩)
    s_j  = Σ_i c_ij û_ij,     v_j = g(s_j + bias_j)

so between iterations only parents live, and this is the loop of `ops.fused.loop` with the query A.
Without a prior the first iteration is one sum, Σ_i û_ij / J.

Departures: half precision votes are not rounded before they are routed, as a vote tensor is; they
are made in float32, and only parents and couplings are rounded.
Ambiguities: none.
"""

from typing import Any

import torch
from torch import Tensor

from torchcaps.ops.checks import widen, without_autocast
from torchcaps.ops.fused.loop import Loop, given
from torchcaps.ops.fused.mixing import mix
from torchcaps.ops.fused.results import by_sample, kept_of, recoupled, routed
from torchcaps.ops.fused.rules import Agreement
from torchcaps.ops.fused.tiles import vote_like
from torchcaps.ops.fused.weighted import sums_of
from torchcaps.ops.routing.couple import recorded
from torchcaps.ops.routing.dynamic import DynamicOptions, check_dynamic, factor_of
from torchcaps.types import Couple, Keep, Routed, VoteMap


def dynamic_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents [*b, j, d], or [*b, p, j, d] through a window, with
    the options, values and gradients of `ops.dynamic_routing` of the materialised votes.

    >>> children = Capsules(torch.ones(1152, 8))
    >>> vote_map = VoteMap(children, torch.ones(1152, 10, 16, 8))
    >>> dynamic_routing(vote_map).parents.pose.shape
    torch.Size([10, 16])
    """
    votes, asked = vote_like(vote_map), DynamicOptions(**options)
    check_dynamic(votes, asked)
    loop = Loop(
        "agreement",
        asked.squash,
        asked.odd_bias,
        iterations=asked.iterations,
        share=1 / (votes.shape[-2] + asked.leaky),
        leaky=asked.leaky,
        detach=asked.detach,
    )
    return route(
        vote_map,
        votes,
        loop,
        prior=asked.prior,
        bias=asked.bias,
        agreement=asked.agreement,
        keep=asked.keep,
        couple=asked.couple,
    )


def route(
    vote_map: VoteMap,
    votes: Tensor,
    loop: Loop,
    *,
    bias: Tensor | None,
    keep: Keep,
    prior: Tensor | None = None,
    couple: Couple | None = None,
    agreement: float | Tensor = 1.0,
) -> Routed:
    """Route with checked arguments; `votes` tells shape and dtype."""
    dtype, window = widen(votes.new_empty(())).dtype, vote_map.window
    if bias is not None:
        bias = by_sample(bias.to(dtype), votes[..., 0, :, :], window)
    factor = factor_of(agreement, dtype)
    if factor is not None:
        factor = torch.as_tensor(factor, dtype=dtype, device=votes.device).reshape(1, 1, 1, 1)
    record = recorded(keep, couple)
    loop = loop._replace(kept=kept_of(record, loop.iterations))
    mixed = mix(given(vote_map, votes, loop, prior=prior, rule_weight=factor, rule_bias=bias))
    ends = Agreement(loop.squash, loop.odd_bias, bias)
    with without_autocast(votes):
        poses = [ends.query(None, s) for s in mixed.sums(record)]
        return recoupled(
            routed(votes, poses, mixed.couplings, record),
            mixed.couplings,
            keep,
            couple,
            lambda coupling: ends.query(None, sums_of(vote_map, votes, coupling)),
        )
