"""Uniform routing from a vote map: equal couplings turn all votes of a parent into one product.

    s_j = c Σ_i û_ij = c Σ_i W_ij u_i      and, where the children share weights,  c W_j Σ_i u_i

The papers, equations and options are those of `ops.uniform_routing`.

Departures: half precision votes are not rounded before they are summed, as a vote tensor is.
Ambiguities: none.
"""

from typing import Any

from torchcaps.ops.fused.dynamic import biases
from torchcaps.ops.fused.loop import Loop
from torchcaps.ops.fused.rules import Agreement
from torchcaps.ops.fused.tiles import vote_like
from torchcaps.ops.fused.weighted import route
from torchcaps.ops.routing.uniform import UniformOptions, check_uniform
from torchcaps.types import Routed, VoteMap


def uniform_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents [*b, j, d], or [*b, p, j, d] through a window, with
    the options, values and gradients of `ops.uniform_routing` of the materialised votes."""
    votes, asked = vote_like(vote_map), UniformOptions(**options)
    loop = Loop("agreement", asked.squash, share=check_uniform(votes, asked))
    ends = Agreement(asked.squash, False, biases(vote_map, votes, asked.bias))
    return route(vote_map, votes, loop, ends.parents, asked.keep, asked.couple)
