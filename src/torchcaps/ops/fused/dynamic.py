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

from torchcaps.ops.checks import widen
from torchcaps.ops.fused.loop import Loop
from torchcaps.ops.fused.results import by_sample
from torchcaps.ops.fused.rules import Agreement
from torchcaps.ops.fused.tiles import vote_like
from torchcaps.ops.fused.weighted import route
from torchcaps.ops.routing.dynamic import DynamicOptions, check_dynamic, factor_of
from torchcaps.types import Routed, VoteMap


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
    dtype = widen(votes.new_empty(())).dtype
    factor = factor_of(asked.agreement, dtype)
    if factor is not None:
        factor = torch.as_tensor(factor, dtype=dtype, device=votes.device).reshape(1, 1, 1, 1)
    bias = biases(vote_map, votes, asked.bias)
    ends = Agreement(asked.squash, asked.odd_bias, bias)
    by: dict[str, Any] = {"prior": asked.prior, "rule_weight": factor, "rule_bias": bias}
    return route(vote_map, votes, loop, ends.parents, asked.keep, asked.couple, **by)


def biases(vote_map: VoteMap, votes: Tensor, bias: Tensor | None) -> Tensor | None:
    """View a bias in the precision of the loop as [b or 1, p or 1, j, d]."""
    wide = None if bias is None else bias.to(widen(votes.new_empty(())).dtype)
    return None if wide is None else by_sample(wide, votes[..., 0, :, :], vote_map.window)
