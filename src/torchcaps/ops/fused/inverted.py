"""Inverted routing from a vote map: the votes are made tile by tile, in both passes, never stored.

The algorithm, its papers, its options and its ambiguities are those of `ops.inverted_routing`.

first iteration    s_j = Σ_i v_ij / J: one convolution through windows, one product without
later iterations   r_ij = softmax_j(scale ⟨p_j, v_ij⟩),   s_j = Σ_i r_ij v_ij

so between iterations only parents live, and this is the loop of `ops.fused.loop` with the query
scale p.

Departures:
1. No activations (ablation C): they need the spread of votes around their mean.
2. Half precision, also that of autocast, is widened before votes are made, and only parents and
   couplings are rounded; a vote tensor is rounded itself.
Ambiguities: none.
"""

from typing import Any

from torch import Tensor

from torchcaps.ops.checks import widen
from torchcaps.ops.fused.loop import Loop
from torchcaps.ops.fused.rules import Present
from torchcaps.ops.fused.tiles import vote_like
from torchcaps.ops.fused.weighted import route
from torchcaps.ops.routing.inverted import InvertedOptions, check_inverted
from torchcaps.types import Routed, VoteMap


def inverted_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents [*b, j, d], or [*b, p, j, d] through a window, with
    the options, values and gradients of `ops.inverted_routing` of the materialised votes.

    >>> vote_map = VoteMap(Capsules(torch.ones(1152, 8)), torch.ones(1152, 10, 16, 8))
    >>> inverted_routing(vote_map).parents.pose.shape
    torch.Size([10, 16])
    """
    votes, asked = vote_like(vote_map), InvertedOptions(**options)
    check_inverted(votes, asked)
    # Of one number: `votes` stands for more than there is memory.
    dtype, size = widen(votes.new_empty(())).dtype, votes.shape[-1]
    weight = bias = None
    if asked.norm is not None:
        weight, bias = (x.to(dtype).expand(size) for x in asked.norm)
    scale, factor, of_rule = asked.scale, asked.scale, (weight, bias)
    if isinstance(scale, Tensor):
        # As a number it would have no gradient, so it goes into the weights of the rule.
        factor, scale = scale.reshape(()).to(votes.device, dtype), 1.0
        of_rule = (factor.reshape(1, 1, 1, 1), None)
        if weight is not None and bias is not None:
            of_rule = (factor * weight, factor * bias)
    loop = Loop("present", scale=scale, iterations=asked.iterations, share=1 / votes.shape[-2])
    query = None if asked.start is None else factor * asked.start.to(dtype)
    names, parameters = ("start", "rule_weight", "rule_bias"), (query, *of_rule)
    by: dict[str, Any] = {"activations": False, **dict(zip(names, parameters, strict=True))}
    ends = Present(1.0, weight, bias)
    return route(vote_map, votes, loop, ends.parents, asked.keep, asked.couple, **by)
