"""Distance routing from a vote map: the votes are made tile by tile, in both passes, never stored.

The algorithm, its papers, its options and its ambiguities are those of `ops.distance_routing`. With
φ_ij, what shortens a vote, n_ij = v_j − û_ij of the parents of the last iteration and one rate f a
sample, or one for all,

    d_ij = sqrt(‖n_ij‖² + ε),   f = −2 ln(p (J − 1) / (1 − p)) / d_o,   c_ij = softmax_j(f d_ij)
    s_j  = Σ_i c_ij û_ij,       S_j = ∂s_j/∂f = Σ_i c_ij (d_ij − Σ_k c_ik d_ik) û_ij

in two passes: d_o is known when all distances are. Backwards one is enough, as S tells beforehand
what f is owed; κ_ij, the gradient of c_ij where it was recorded, costs another. With γ_j, that of
s_j,

    h_ij  = ⟨û_ij, γ_j⟩ + κ_ij,              β_ij = c_ij (h_ij − Σ_k c_ik h_ik)
    ∂f    = Σ_j ⟨γ_j, S_j⟩ + Σ_ij κ_ij c_ij (d_ij − Σ_k c_ik d_ik),     ∂d_o = −∂f f / d_o
    q_ij  = (f β_ij + mean share of ∂d_o) / d_ij
    ∂û_ij = c_ij γ_j − q_ij n_ij,            ∂v_j = Σ_i q_ij n_ij   of the iteration before

and through φ = a / ‖w‖ of a vote w that is longer than its child a,

    ∂w_ij = φ (∂û_ij − ⟨∂û_ij, w_ij⟩ w_ij / ‖w_ij‖²),   ∂a_i = Σ_j ⟨∂û_ij, w_ij⟩ / ‖w_ij‖

Departures: half precision votes are not rounded before they are routed, as a vote tensor is; they
are made in float32, and only parents and couplings are rounded.
Ambiguities: none.

With detach="iterations" the last iteration alone has gradients, and none through its couplings.

Kept are the children, the weights, and s and S of every iteration, parents only; while it runs, the
forward pass holds φ and d, two numbers a child and parent. No gradient of the gradient.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchcaps.ops.checks import may_look, widen
from torchcaps.ops.fused.distance_gradients import gradients
from torchcaps.ops.fused.distance_tiles import Given, How, Measured, forward, shapes
from torchcaps.ops.fused.em import Met, distances
from torchcaps.ops.fused.results import by_sample, routed
from torchcaps.ops.fused.tiles import MadeOf, made_of, vote_like
from torchcaps.ops.fused.weighted import sums_of
from torchcaps.ops.operators import Operator, by_stored_votes
from torchcaps.ops.routing.common import biased
from torchcaps.ops.routing.couple import recorded
from torchcaps.ops.routing.distance import SHORTEST, DistanceOptions, check_distance, no_longer_than
from torchcaps.ops.squashing import squash as g
from torchcaps.ops.votes import materialise
from torchcaps.types import Capsules, Routed, VoteMap


def distance_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map, whose children are as long as their activations, to parents
    [*b, j, d], or [*b, p, j, d] through a window, with the options, values and gradients of
    `ops.distance_routing` of the materialised votes.

    >>> from torchcaps import Capsules
    >>> children = Capsules(torch.ones(1152, 8), torch.ones(1152))
    >>> routed = distance_routing(VoteMap(children, torch.ones(1152, 10, 16, 8)))
    >>> routed.parents.pose.shape, routed.scale.shape
    (torch.Size([10, 16]), torch.Size([2]))
    """
    return route(measured, vote_map, **options)


def route(operator: Callable[[Given], Measured], vote_map: VoteMap, **options: Any) -> Routed:
    """Route as `distance_routing` does, by an operator."""
    asked, votes = DistanceOptions(**options), vote_like(vote_map)
    activation, window = vote_map.children.activation, vote_map.window
    if activation is not None and window is not None:
        # Wide, for the sum of what windows owe to one child.
        activation = window.of(widen(activation).unsqueeze(-1)).squeeze(-1)
    activation, log_odds = check_distance(votes, activation, asked)
    *lead, n_in, _, _ = votes.shape
    parts = made_of(vote_map, votes)
    given = asked.scale if isinstance(asked.scale, Tensor) else None
    bias = None if asked.bias is None else asked.bias.to(parts.dtype)
    length = activation.to(parts.dtype).expand(*lead, n_in)
    bias = None if bias is None else by_sample(bias, votes[..., 0, :, :], window)
    record = recorded(asked.keep, asked.couple)
    constant = asked.detach == "iterations"
    if constant and given is not None:
        given = given.detach()
    how = How(
        asked.iterations,
        log_odds,
        by_sample=given is None and asked.scale == "sample",
        # What the rate f is owed; nobody asks in a prediction.
        with_slopes=torch.is_grad_enabled()
        and not constant
        and (given is None or given.requires_grad),
        squash=asked.squash,
        detach=asked.detach,
        keep=record,
    )
    stored = None if given is None else given.to(parts.dtype)
    lanes = parts.counts()[:2]
    by_lane = None if bias is None else bias.transpose(0, 1)
    found = operator(Given(parts, length.reshape(*lanes, n_in), by_lane, stored, how))
    poses, couplings, means = found.poses.unbind(), found.couplings, found.means
    if constant:
        poses = (*(x.detach() for x in poses[:-1]), poses[-1])
        couplings, means = couplings.detach(), means.detach()
    if means.ndim > 1:
        means = means.reshape(len(means), *lead).movedim(0, -1)
    scale = means if asked.iterations > 1 else None

    def parents_of(coupling: Tensor) -> Tensor:
        return g(biased(_sums(vote_map, votes, coupling, length), bias, False), asked.squash)

    made = routed(votes, poses, couplings, asked.keep, asked.couple, parents_of)
    return made._replace(scale=scale)


def _sums(vote_map: VoteMap, votes: Tensor, coupling: Tensor, length: Tensor) -> Tensor:
    """Return Σ_i c_ij û_ij of votes that are shortened to `length`, [b, p, j, d]."""
    # Wide, as the gradient has two parts, that of the sums and that of the lengths.
    wide = _widened(vote_map, length.dtype)
    parts = made_of(wide, votes)
    norm = _squared_norms(parts, length)
    # Votes of one number are no more than couplings, and where squares overflow the plain op knows
    # what to do.
    if votes.shape[-1] == 1 or (may_look(norm) and bool(norm.isinf().any())):
        stored = no_longer_than(length, materialise(parts.vote_map))
        s = (coupling.to(length.dtype).unsqueeze(-1) * stored).sum(-3)
        return s.reshape(*parts.counts()[:2], *s.shape[-2:])
    return sums_of(wide, votes, coupling * _shortening(norm, length))


def _widened(vote_map: VoteMap, dtype: torch.dtype) -> VoteMap:
    """Widen tensors; those that have that precision already stay the same ones."""
    bias, coordinates = (
        None if x is None else x.to(dtype) for x in (vote_map.bias, vote_map.coordinates)
    )
    return vote_map._replace(
        children=Capsules(vote_map.children.pose.to(dtype)),
        weight=vote_map.weight.to(dtype),
        bias=bias,
        coordinates=coordinates,
    )


def _squared_norms(votes: MadeOf, length: Tensor) -> Tensor:
    """Give ‖û_ij‖², [*b, i, j], of children as long as `length` [*b, i]: distances from zero, which
    EM routing measures without a vote tensor."""
    samples, windows, _, parents, size = votes.counts()
    zero = length.new_zeros(samples, windows, parents, size)
    norm = distances(Met(zero, torch.ones_like(zero), votes))  # [i, j, p, b]
    return norm.permute(3, 2, 0, 1).reshape(*length.shape, parents)


def _shortening(norm: Tensor, length: Tensor) -> Tensor:
    """Give min(1, ‖u_i‖ / ‖û_ij‖), from squares."""
    limit = length.unsqueeze(-1)
    longer = norm > (limit * limit).clamp(min=SHORTEST**2)
    return torch.where(longer, limit / torch.where(longer, norm, 1).sqrt(), 1)


measured = Operator(
    "torchcaps::distance_routing",
    forward=forward,
    shapes=shapes,
    backward=gradients,
    saves=[0, 1, 2],
    what="fused distance routing",
    instead=by_stored_votes("distance_routing"),
)
