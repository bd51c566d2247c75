"""EM routing from a vote map: the votes are made tile by tile, in both passes, never stored.

The algorithm, its papers, its options and its ambiguities are those of `ops.em_routing`. Votes are
met in two steps alone: parents are fitted to them, with weights that sum to one over children, and
children are assigned to parents by them.

w_ij ∝ r_ij a_i,   m_j = Σ_i r_ij a_i,   μ_j = Σ_i w_ij V_ij,   σ_j² = Σ_i w_ij (V_ij − μ_j)²
r_ij ∝ exp(ℓ_j − ½ z_ij),   z_ij = Σ_h (V_ij^h − μ_j^h)² / (σ_j^h)²,   ℓ_j = ln a_j − Σ_h ln σ_j^h

The sum over children is done twice: exact where σ is small. All else is about parents, or about
slots: r sums to one over the parents of a window, and where windows share a child, that window's
part in it is a factor s_i, which joins a_i.

A vote bias shifts a parent and nothing else, so votes are made without it. A damped mean is moved
after the fit, and the variance about it is larger by the square of the move.

Backwards, with e_ij = V_ij − μ_j, from α_j and ν_j, the gradients of μ_j and σ_j², and κ_ij, that
of z_ij,

    ∂w_ij = ⟨e_ij, α_j + ν_j e_ij⟩,   ∂V_ij = w_ij (α_j + 2 ν_j e_ij)        of the moments
    ∂V_ij = 2 κ_ij e_ij / σ_j²,   ∂μ_j = −Σ_i ∂V_ij,   ∂σ_j² = −Σ_i κ_ij (e_ij / σ_j²)²

A number of a parent, the same for all children, is left out of ∂w: along weights that sum to one it
is no gradient. δ_j = Σ_i w_ij e_ij is zero but for the rounding of μ_j, and σ_j may be as small: so
α_j owes −2 ν_j δ_j to σ_j², and an error that all e_ij share leaves no trace. Nor does ℓ_j move w
where all r_ij are alike; `ops.fused.likely` says how its gradient goes.

Departures: half precision votes are not rounded before they are routed, as a vote tensor is; they
are made in float32, and only parents and couplings are rounded.
Ambiguities: none.

Kept are the children, the weights, the parents of every iteration and three tensors of couplings
[b, i, j] of the last: those of the others are made once more backwards, one iteration at a time,
unless torch.compile decides what is kept. No gradient of the gradient.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torchcaps.ops.checks import widen, without_autocast
from torchcaps.ops.fused.likely import Likely, moves
from torchcaps.ops.fused.tiles import (
    FEW_PARENTS,
    Lanes,
    MadeOf,
    Tile,
    TiledVotes,
    VoteGradients,
    made_of,
    vote_like,
)
from torchcaps.ops.operators import Asked, Gradients, Operator, by_stored_votes
from torchcaps.ops.routing.couple import replaced
from torchcaps.ops.routing.em import (
    DAMPING,
    LEAST_ACTIVATION,
    EMOptions,
    check_em,
    first_couplings,
    likelihood_of,
    logit_of,
    shares_of,
)
from torchcaps.ops.routing.shared_children import softmax_over_windows
from torchcaps.types import Capsules, Routed, Step, VoteMap


def em_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map, by the activations of its children, to parents [*b, j, d], or
    [*b, p, j, d] through a window, with the options, values and gradients of `ops.em_routing` of
    the materialised votes.

    >>> children, beta = Capsules(torch.rand(18, 16), torch.ones(18)), torch.zeros(5)
    >>> vote_map = VoteMap(children, torch.rand(18, 5, 4, 4), pose="matrix")
    >>> em_routing(vote_map, beta_a=beta, beta_u=beta).parents.pose.shape
    torch.Size([5, 16])
    """
    return route(Tiled, vote_map, **options)


class Steps(Protocol):
    """Takes the two steps that meet votes. Numbers of slots are [b, p, i], of parents [b, p, j];
    how couplings lie is known here alone."""

    def __init__(self, votes: MadeOf) -> None: ...

    def fit(self, log_r: Tensor | None, log_a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return m, μ and σ² from ln r, none for r = 1, and ln a."""
        ...

    def assign(
        self, likely: Tensor, mean: Tensor, variance: Tensor, wants_seen: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return ln r, and the logarithm of what it was divided by."""
        ...

    def laid_out(self, log_r: Tensor) -> Tensor:
        """Lay couplings as [b, p, i, j]."""
        ...


def route(kind: type[Steps], vote_map: VoteMap, **options: Any) -> Routed:
    """Do `em_routing`, whoever does the two steps."""
    votes, asked = vote_like(vote_map), EMOptions(**options)
    activation, window = vote_map.children.activation, vote_map.window
    if activation is not None and window is not None:
        # Wide: what windows owe to one child may be too much for half precision, one by one.
        activation = window.of(widen(activation).unsqueeze(-1)).squeeze(-1)
    activation = check_em(votes, activation, asked)
    *lead, n_in, n_out, d = votes.shape
    wide = widen(votes.new_empty(()))
    bias = wide.new_zeros(()) if vote_map.bias is None else vote_map.bias.to(wide.dtype)
    without_bias = made_of(vote_map._replace(bias=None), votes)
    n_batch, n_windows, *_ = without_bias.counts()
    meet = kind(without_bias)
    asked = asked.in_precision_of(wide)
    share_out = None if asked.child_id is None else softmax_over_windows(asked.child_id)
    steps = []
    with without_autocast(votes):
        a_in = widen(activation).to(wide.dtype).clamp_min(LEAST_ACTIVATION)
        log_a_in = a_in.log().reshape(n_batch, n_windows, n_in)
        first = first_couplings(wide, n_out, asked).log()
        log_r, log_share = None, first.squeeze(-1) if first.ndim else first
        before, still = -bias, wide.new_zeros((1, 1, 1))
        move = still

        def share(likely: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            """Return ln r and ln s of parents that were found, and what moves their masses."""
            log_r, seen = meet.assign(likely.detach(), mean, variance, share_out is not None)
            log_share, move = wide.new_zeros(()), still
            if torch.is_grad_enabled():
                log_share, move, of_seen = moves(Likely(likely, meet.laid_out(log_r.detach())))
                seen = None if seen is None else seen + of_seen
            if share_out is not None and seen is not None:
                log_share = log_share + share_out(seen.unsqueeze(-1)).squeeze(-1)
            return log_r, log_share, move

        def refit(*found: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return fit(*share(*found))

        def fit(
            log_r: Tensor | None, log_share: Tensor, move: Tensor
        ) -> tuple[Tensor, Tensor, Tensor]:
            mass, mean, variance = meet.fit(log_r, log_a_in + log_share)
            return mass * (1 + move), mean, variance

        def couplings(log_r: Tensor | None, log_share: Tensor, move: Tensor) -> Tensor:
            log_rs = log_share.unsqueeze(-1) + move.unsqueeze(-2)
            log_rs = log_rs if log_r is None else meet.laid_out(log_r) + log_rs
            r = log_rs.exp().expand(n_batch, n_windows, n_in, n_out)
            return r.reshape(*lead, n_in, n_out)

        found: tuple[Tensor, Tensor, Tensor] | None = None
        for t in range(1, asked.iterations + 1):
            last = t == asked.iterations
            made: Tensor | None = None
            if found is not None and not last and asked.keep != "steps" and _may_repeat():
                # Backwards their couplings are made once more: those of one iteration at a time.
                mass, mean, variance = checkpoint(
                    refit, *found, use_reentrant=False, preserve_rng_state=False
                )
            else:
                if found is not None:
                    log_r, log_share, move = share(*found)
                if last and asked.couple is not None:
                    made = replaced(asked.couple, couplings(log_r, log_share, move), negative=False)
                if made is None:
                    mass, mean, variance = fit(log_r, log_share, move)
                else:
                    mass, mean, variance = _fitted_to(made, a_in, bias, without_bias)
            if asked.variant == "official":
                # A parent that was given no child has no votes to be away from.
                damped = DAMPING * (before - mean)
                away = damped.square()
                away = away if made is None else away * (mass > 0).unsqueeze(-1)
                mean, variance = mean + damped, variance + away
                before = mean
            variance = variance + asked.floor
            logit = logit_of(t, variance, mass, asked, n_in / n_out)
            pose, activation = mean + bias, logit.sigmoid()
            parents = Capsules(pose.view(*lead, n_out, d), activation.view(*lead, n_out))
            parents = Capsules(*(x.to(votes.dtype) for x in parents if x is not None))
            if asked.keep == "steps" or (asked.keep == "last" and last):
                r = couplings(log_r, log_share, move) if made is None else made
                steps.append(Step(None, r.to(votes.dtype), parents))
            if not last:
                found = likelihood_of(logit, variance, asked), mean, variance
    return Routed(parents, tuple(steps))


def _fitted_to(
    coupling: Tensor, activation: Tensor, bias: Tensor, votes: MadeOf
) -> tuple[Tensor, Tensor, Tensor]:
    """Return m, μ and σ² of couplings [*b, i, j] that somebody gave, whoever does the other steps;
    the bias is still to be added to μ."""
    samples, windows, *_ = votes.counts()
    weight = coupling.to(activation.dtype) * activation.unsqueeze(-1)
    share, mass = shares_of(weight.reshape(samples, windows, *weight.shape[-2:]))
    mean, variance, _ = moments(Shared(share.permute(2, 3, 1, 0), votes))
    # A parent that was given no child lies at zero.
    return mass, mean - bias * (mass == 0).unsqueeze(-1), variance


def _may_repeat() -> bool:
    """Say whether a backward pass may ask for what was forgotten; a compiler decides by itself."""
    return torch.is_grad_enabled() and not torch.compiler.is_compiling()


class Tiled:
    """Takes the steps from tiles of votes. Couplings are [i, j, p, b]."""

    def __init__(self, votes: MadeOf):
        # Gradients of the two steps, and of iterations, are large numbers that nearly cancel: in
        # half precision each of them would be rounded, and some to infinity.
        self.votes = votes.widened()

    def fit(self, log_r: Tensor | None, log_a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        log_a = log_a.permute(2, 1, 0).unsqueeze(1)
        n_in, _, n_windows, n_batch = log_a.shape
        joint = log_a if log_r is None else log_r + log_a
        share = joint.softmax(0).expand(n_in, self.votes.weight.shape[-3], n_windows, n_batch)
        mass = joint.exp().sum(0).expand(share.shape[1:]).permute(2, 1, 0)
        mean, variance, _ = moments(Shared(share, self.votes))
        return mass, mean, variance

    def assign(
        self, likely: Tensor, mean: Tensor, variance: Tensor, wants_seen: bool
    ) -> tuple[Tensor, Tensor | None]:
        logits = likely.permute(2, 1, 0) - distances(Met(mean, variance, self.votes)) / 2
        seen = logits.logsumexp(1).permute(2, 1, 0) if wants_seen else None
        log_r = logits.log_softmax(1)
        if log_r.shape[1] > FEW_PARENTS:  # As `softmax_over_parents`; no gradient comes through it.
            log_r = log_r - log_r.detach().logsumexp(1, keepdim=True)
        return log_r, seen

    def laid_out(self, log_r: Tensor) -> Tensor:
        return log_r.permute(3, 2, 0, 1)


class Shared(NamedTuple):
    """Votes and their weights w, which sum to one over children."""

    share: Tensor
    votes: MadeOf


class Moments(NamedTuple):
    """Mean and variance [b, p, j, d] of weighted votes, and what is left of the mean about
    itself."""

    mean: Tensor
    variance: Tensor
    rest: Tensor


class Met(NamedTuple):
    """Votes and the parents [b, p, j, d] that they are compared with."""

    mean: Tensor
    variance: Tensor
    votes: MadeOf


def _moments(given: Shared) -> Moments:
    """Compute the moments for weights [i, j, p, b]."""
    found = _moments_shapes(given)
    with without_autocast(given.votes.pose):
        votes = TiledVotes(given.votes.vote_map, given.votes.dtype)
        for lanes in votes.lanes():
            mean, variance, rest = (votes.parents(lanes) for _ in range(3))
            for tile in votes.tiles(lanes):
                v = votes.votes(tile, votes.seen(tile))  # [t, j, d, p, b]
                mean += v.mul_(of_tile(votes, given.share, tile).unsqueeze(2)).sum((0, 3))
            for tile in votes.tiles(lanes):
                e = votes.votes(tile, votes.seen(tile)).sub_(mean.unsqueeze(-2))
                part = votes.times(e, of_tile(votes, given.share, tile).unsqueeze(2))
                rest += part.sum((0, 3))
                variance += part.mul_(e).sum((0, 3))
            for part, whole in zip((mean, variance, rest), found, strict=True):
                whole.transpose(0, 1)[lanes] = votes.from_lanes(part, lanes)
    return found


def _moments_shapes(given: Shared) -> Moments:
    samples, windows, _, parents, size = given.votes.counts()
    shape, dtype = (samples, windows, parents, size), given.votes.dtype
    return Moments(*(given.votes.pose.new_empty(shape, dtype=dtype) for _ in range(3)))


def _moments_backward(asked: Asked[Shared]) -> Gradients:
    given, (means, rests), needs = asked.given, asked.saved, asked.needs
    share = given.share
    of_mean, of_variance = (
        torch.zeros_like(means) if x is None else x for x in asked.gradients[:2]
    )
    of_mean = of_mean - 2 * of_variance * rests
    with without_autocast(given.votes.pose):
        votes = TiledVotes(given.votes.vote_map, given.votes.dtype)
        found = VoteGradients(votes, *needs[1:])
        of_share = means.new_empty(share.shape) if needs[0] else None
        for lanes in votes.lanes():
            mean, of_m, of_v = _by_lane(votes, lanes, means, of_mean, of_variance)
            for tile in votes.tiles(lanes):
                seen = votes.seen(tile)
                e = votes.votes(tile, seen).sub_(mean)  # [t, j, d, p, b]
                slope = votes.times(e, of_v)
                both = slope + of_m
                if of_share is not None:
                    write_tile(votes, of_share, tile, e.mul_(both).sum(2))
                if found.any:
                    of_votes = both.add_(slope).mul_(of_tile(votes, share, tile).unsqueeze(2))
                    found.add(tile, seen, of_votes)
        return [of_share, *found.of(given.votes.vote_map)]


def _distances(given: Met) -> Tensor:
    """Give Σ_h (V_ij − μ_j)² / σ_j², [i, j, p, b]."""
    distances = _distances_shapes(given)
    with without_autocast(given.votes.pose):
        votes = TiledVotes(given.votes.vote_map, given.votes.dtype)
        for lanes in votes.lanes():
            mean, variance = _by_lane(votes, lanes, given.mean, given.variance)
            for tile in votes.tiles(lanes):
                e = votes.votes(tile, votes.seen(tile)).sub_(mean)  # [t, j, d, p, b]
                write_tile(votes, distances, tile, e.square_().div_(variance).sum(2))
    return distances


def _distances_shapes(given: Met) -> Tensor:
    samples, windows, children, parents, _ = given.votes.counts()
    shape = (children, parents, windows, samples)
    return given.votes.pose.new_empty(shape, dtype=given.votes.dtype)


def _distances_backward(asked: Asked[Met]) -> Gradients:
    given, (of_distances,) = asked.given, asked.gradients
    assert of_distances is not None
    of_mean, of_variance = (given.mean.new_empty(given.mean.shape) for _ in range(2))
    with without_autocast(given.votes.pose):
        votes = TiledVotes(given.votes.vote_map, given.votes.dtype)
        found = VoteGradients(votes, *asked.needs[2:])
        for lanes in votes.lanes():
            mean, variance = _by_lane(votes, lanes, given.mean, given.variance)
            of_m, of_v = votes.parents(lanes), votes.parents(lanes)
            for tile in votes.tiles(lanes):
                seen = votes.seen(tile)
                scaled = votes.votes(tile, seen).sub_(mean).div_(variance)  # [t, j, d, p, b]
                amount = 2 * of_tile(votes, of_distances, tile)
                of_votes = votes.times(scaled, amount.unsqueeze(2))
                of_m -= of_votes.sum((0, 3))
                of_v -= scaled.mul_(of_votes).sum((0, 3)) / 2
                if found.any:
                    found.add(tile, seen, of_votes)
            of_mean.transpose(0, 1)[lanes] = votes.from_lanes(of_m, lanes)
            of_variance.transpose(0, 1)[lanes] = votes.from_lanes(of_v, lanes)
        return [of_mean, of_variance, *found.of(given.votes.vote_map)]


def _by_lane(votes: TiledVotes, lanes: Lanes, *parents: Tensor) -> Iterator[Tensor]:
    """Give parents [b, p, j, d] of these lanes as [j, d, 1, b]."""
    return (votes.to_lanes(x.transpose(0, 1)[lanes]).unsqueeze(-2) for x in parents)


def of_tile(votes: TiledVotes, couplings: Tensor, tile: Tile) -> Tensor:
    """Return what a tile has of couplings [i, j, p, b], as [t, j, p, b]."""
    return votes.of_couplings(couplings.permute(2, 3, 0, 1), tile).flatten(-2)


def write_tile(votes: TiledVotes, couplings: Tensor, tile: Tile, part: Tensor) -> None:
    """Write [t, j, p, b] where they lie in couplings [i, j, p, b]."""
    there = votes.of_couplings(couplings.permute(2, 3, 0, 1), tile)
    there.copy_(votes.by_lane(part, tile.lanes))


moments = Operator(
    "torchcaps::em_moments",
    forward=_moments,
    shapes=_moments_shapes,
    backward=_moments_backward,
    saves=[0, 2],
    what="fused EM routing",
    instead=by_stored_votes("em_routing"),
)
distances = Operator(
    "torchcaps::em_distances",
    forward=_distances,
    shapes=_distances_shapes,
    backward=_distances_backward,
    what="fused EM routing",
    instead=by_stored_votes("em_routing"),
)
