"""Routings whose couplings are a softmax over parents of how far votes agree with a query: one
loop, one derivation of its gradient, one operator (`ops.fused.mixing`).

    q_1 = start, or none
    for t = 1 … T:
        c_ij = softmax_j(⟨û_ij, q_tj⟩ + prior_ij)      `share` without query and prior
        s_tj = Σ_i (c_ij + added_ij) û_ij              added in the last iteration alone
        q_{t+1} = rule(q_t, s_t)                       of parents alone, `ops.fused.rules`

so between iterations only parents live. Backwards, from γ_j, the gradient of s_j, and κ_ij, that of
the coupling where it was recorded,

    h_ij  = ⟨û_ij, γ_j⟩ + κ_ij = ∂added_ij     ∂b_ij = c_ij (h_ij − Σ_k c_ik h_ik) = ∂prior_ij
    ∂û_ij = (c_ij + added_ij) γ_j + ∂b_ij q_j  ∂q_j  = Σ_i ∂b_ij û_ij

and the rule hands ∂q on to the sums before. `detach` leaves some of these terms out; under
"states" ∂q reaches the factor of the rule and no sums.

The operator adds the gradients of all iterations into one tensor for each of its inputs. Kept are
the inputs and all sums but the last. No gradient of the gradient.
"""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from torchcaps.ops.fused.results import by_sample
from torchcaps.ops.fused.rules import Agreement, Present, Rule
from torchcaps.ops.fused.tiles import MadeOf, made_of
from torchcaps.ops.operators import Asked
from torchcaps.types import Keep, VoteMap


class Loop(NamedTuple):
    """Says what is done with the votes."""

    rule: str = "present"
    squash: str = "none"
    odd_bias: bool = False
    scale: float = 1.0
    iterations: int = 1
    share: float = 0.0
    leaky: bool = False
    detach: str = "none"
    kept: int = 0  # of how many of the last iterations couplings are recorded


class Given(NamedTuple):
    """Holds what an operator is given. Parameters of parents are [b, p, j, d], of couplings [b, p,
    i, j]; axes b and p of one stand for all samples and windows."""

    made_of: MadeOf
    prior: Tensor | None
    added: Tensor | None
    start: Tensor | None
    rule_weight: Tensor | None
    rule_bias: Tensor | None
    loop: Loop

    @property
    def rule(self) -> Rule:
        loop, weight, bias = self.loop, self.rule_weight, self.rule_bias
        if loop.rule == "agreement":
            return Agreement(loop.squash, loop.odd_bias, bias, weight)
        return Present(loop.scale, weight, bias)


class Mixed(NamedTuple):
    """What a loop gives: sums [b, p, j, d] and couplings [t, b, p, i, j]."""

    last: Tensor
    earlier: Tensor  # [t, b, p, j, d]
    couplings: Tensor

    def sums(self, keep: Keep) -> list[Tensor]:
        """Say how many sums there are: of the iterations kept, and always the last."""
        return [*self.earlier.unbind(), self.last] if keep == "steps" else [self.last]


class Visit(NamedTuple):
    """Says of an iteration, backwards, what comes to it, and which terms go on."""

    t: int
    is_uniform: bool
    has_query: bool
    adds: bool  # `added`
    has_sum: bool  # γ comes
    has_coupling: bool  # κ comes
    mixes: bool  # (c + added) γ goes to the votes
    agrees: bool  # ∂b q goes to the votes
    to_query: bool
    to_prior: bool
    to_added: bool

    @property
    def to_logits(self) -> bool:
        return self.agrees or self.to_query or self.to_prior

    @property
    def goes_on(self) -> bool:
        return self.mixes or self.to_logits or self.to_added


def given(
    vote_map: VoteMap,
    votes: Tensor,
    loop: Loop,
    *,
    prior: Tensor | None = None,
    added: Tensor | None = None,
    start: Tensor | None = None,
    rule_weight: Tensor | None = None,
    rule_bias: Tensor | None = None,
) -> Given:
    """Make what an operator is given of checked arguments; `votes` tells shape and dtype.
    Parameters follow the precision of the votes, as in the plain op; those of the rule do so
    already."""
    window, like, votes_of = vote_map.window, votes[..., 0, :, :], made_of(vote_map, votes)
    wide = votes_of.dtype
    return Given(
        votes_of,
        None if prior is None else by_sample(prior.to(wide), votes[..., 0], window),
        None if added is None else by_sample(added.to(wide), votes[..., 0], window),
        None if start is None else by_sample(start.to(wide).expand_as(like), like, window),
        rule_weight,
        rule_bias,
        loop,
    )


def visits(asked: Asked[Given]) -> Iterator[Visit]:
    """Go through the iterations that a gradient reaches, from the last to the first."""
    given, loop = asked.given, asked.given.loop
    of_last, of_earlier, of_couplings = asked.gradients
    *of_votes, for_prior, for_added, for_start, for_weight, for_bias = asked.needs
    to_votes, to_before = any(of_votes), for_prior or for_start or for_weight or for_bias
    # Under "votes" earlier iterations have a gradient for what is no vote.
    goes_back = {"none": to_votes or to_before, "votes": to_before, "states": for_weight}.get(
        loop.detach, False
    )
    first_recorded = loop.iterations - (0 if of_couplings is None else loop.kept)
    reached = False
    for t in reversed(range(loop.iterations)):
        last, has_query = t == loop.iterations - 1, t > 0 or given.start is not None
        adds = last and given.added is not None
        is_uniform = not (has_query or adds or given.prior is not None)
        has_sum = reached or (of_last if last else of_earlier) is not None
        has_coupling = t >= first_recorded and not is_uniform
        if not has_sum and not has_coupling:
            continue
        visit = Visit(
            t,
            is_uniform,
            has_query,
            adds,
            has_sum,
            has_coupling,
            mixes=has_sum and to_votes and (last or loop.detach != "votes"),
            agrees=has_query and to_votes and loop.detach in ("none", "states"),
            to_query=has_query and goes_back and (t > 0 or for_start),
            to_prior=for_prior and loop.detach != "coupling",
            to_added=for_added and adds,
        )
        reached = reached or (visit.to_query and loop.detach != "states")
        yield visit
