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
from torchcaps.ops.fused.loop import route
from torchcaps.ops.fused.tiles import vote_like
from torchcaps.ops.routing.inverted import InvertedOptions, check_inverted, normalised
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
    dtype, size, scale = widen(votes.new_empty(())).dtype, votes.shape[-1], asked.scale
    if isinstance(scale, Tensor):
        scale = scale.reshape(()).to(votes.device, dtype)
    norm = [x.to(dtype).expand(size) for x in asked.norm or ()]
    return route(
        vote_map,
        votes,
        lambda sums: normalised(sums, norm[0], norm[1]) if norm else sums,
        lambda _, pose: scale * pose,
        keep=asked.keep,
        couple=asked.couple,
        share=1 / votes.shape[-2],
        iterations=asked.iterations,
        start=None if asked.start is None else scale * asked.start.to(dtype),
        activations=False,
    )
