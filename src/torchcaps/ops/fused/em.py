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
α_j owes −2 ν_j δ_j to σ_j², and an error that all e_ij share leaves no trace.

Departures: half precision votes are not rounded before they are routed, as a vote tensor is; they
are made in float32, and only parents and couplings are rounded.
Ambiguities: none.

Kept are the children, the weights, the parents of every iteration and three tensors of couplings
[b, i, j] of the last: those of the others are made once more backwards, one iteration at a time,
unless torch.compile decides what is kept. No gradient of the gradient.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, get_args

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torchcaps.ops.checks import (
    check_broadcast,
    check_choice,
    check_iterations,
    check_keep,
    check_votes,
    widen,
    without_autocast,
)
from torchcaps.ops.fused.tiles import Tile, TiledVotes, VoteGradients, vote_like, vote_map_of
from torchcaps.ops.gradients import listed, once, shapes_listed, wanted
from torchcaps.ops.routing.em import (
    DAMPING,
    FLOOR,
    LEAST_ACTIVATION,
    Compete,
    EMVariant,
    LambdaSchedule,
    _check_child_id,
    _checked,
    _cost,
    _counted,
    _over_windows,
    check_em_numbers,
    lambda_at,
)
from torchcaps.types import Capsules, Keep, Routed, Step, VoteMap

__all__ = ["em_routing"]


def em_routing(
    vote_map: VoteMap,
    *,
    beta_a: Tensor,
    beta_u: Tensor,
    iterations: int = 3,
    variant: EMVariant = "paper",
    compete: Compete = "window",
    child_id: Tensor | None = None,
    lambda_: float = 0.01,
    lambda_schedule: LambdaSchedule = "growing",
    variance_floor: float | None = None,
    keep: Keep = "none",
) -> Routed:
    """Route the votes of a vote map, by the activations of its children, to parents [*b, j, d], or
    [*b, p, j, d] through a window, with the values and gradients of `ops.em_routing` of the
    materialised votes.

    >>> children, beta = Capsules(torch.rand(18, 16), torch.ones(18)), torch.zeros(5)
    >>> vote_map = VoteMap(children, torch.rand(18, 5, 4, 4), pose="matrix")
    >>> em_routing(vote_map, beta_a=beta, beta_u=beta).parents.pose.shape
    torch.Size([5, 16])
    """
    return route(
        Tiled,
        vote_map,
        beta_a=beta_a,
        beta_u=beta_u,
        iterations=iterations,
        variant=variant,
        compete=compete,
        child_id=child_id,
        lambda_=lambda_,
        lambda_schedule=lambda_schedule,
        variance_floor=variance_floor,
        keep=keep,
    )


class MadeOf(NamedTuple):
    """What votes are made of, but for their bias, as operators of the dispatcher take it."""

    pose: Tensor
    matrices: Tensor
    coordinates: Tensor | None
    sharing: str
    kind: str
    window: list[int]
    dtype: torch.dtype


class Steps(Protocol):
    """The two steps that meet votes. Numbers of slots are [b, p, i], of parents [b, p, j]; how
    couplings lie is known here alone."""

    def __init__(self, made_of: MadeOf) -> None: ...

    def fit(self, log_r: Tensor | None, log_a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """m, μ and σ² from ln r, none for r = 1, and ln a."""
        ...

    def assign(
        self, likely: Tensor, mean: Tensor, variance: Tensor, wants_seen: bool
    ) -> tuple[Tensor, Tensor | None]:
        """ln r, and the logarithm of what it was divided by."""
        ...

    def laid_out(self, log_r: Tensor) -> Tensor:
        """Couplings as [b, p, i, j]."""
        ...


def route(
    kind: type[Steps],
    vote_map: VoteMap,
    *,
    beta_a: Tensor,
    beta_u: Tensor,
    iterations: int = 3,
    variant: EMVariant = "paper",
    compete: Compete = "window",
    child_id: Tensor | None = None,
    lambda_: float = 0.01,
    lambda_schedule: LambdaSchedule = "growing",
    variance_floor: float | None = None,
    keep: Keep = "none",
) -> Routed:
    """`em_routing`, whoever does the two steps."""
    votes = vote_like(vote_map)
    check_votes(votes)
    check_iterations(iterations)
    check_choice("variant", variant, get_args(EMVariant))
    check_choice("compete", compete, get_args(Compete))
    check_choice("lambda_schedule", lambda_schedule, get_args(LambdaSchedule))
    check_keep(keep)
    check_em_numbers(lambda_, variance_floor)
    activation, window = vote_map.children.activation, vote_map.window
    if activation is not None and window is not None:
        activation = window.of(activation.unsqueeze(-1)).squeeze(-1)
    activation = _checked(activation, votes)
    _check_child_id(child_id, votes, compete)
    *lead, n_in, n_out, d = votes.shape
    for name, beta in (("beta_a", beta_a), ("beta_u", beta_u)):
        check_broadcast(name, beta, (n_out,), "[parent]")
    floor = FLOOR[variant] if variance_floor is None else variance_floor
    # Of one number: `votes` stands for more than there is memory.
    wide = widen(votes.new_empty(()))
    n_batch, n_windows = (math.prod(lead[:-1]), lead[-1]) if window else (math.prod(lead), 1)
    coordinates = vote_map.coordinates
    bias = wide.new_zeros(()) if vote_map.bias is None else vote_map.bias.to(wide.dtype)
    meet = kind(
        MadeOf(
            vote_map.children.pose,
            vote_map.weight,
            None if coordinates is None else coordinates.to(wide.dtype).expand(n_in, d),
            vote_map.sharing,
            vote_map.pose,
            [] if window is None else [*window.child_grid, *window.kernel, *window.stride],
            wide.dtype,
        )
    )
    child_id = None if child_id is None else _counted(child_id)
    share_out = None if child_id is None else _over_windows(child_id)
    steps = []
    with without_autocast(votes):
        a_in = widen(activation).to(wide.dtype).clamp_min(LEAST_ACTIVATION)
        log_a_in = a_in.log().reshape(n_batch, n_windows, n_in)
        beta_a, beta_u = beta_a.to(wide.dtype), beta_u.to(wide.dtype)
        log_r, log_share = None, _first(wide, n_out, child_id, variant)
        before = -bias

        def share(likely: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
            """ln r and ln s of parents that were found."""
            log_r, seen = meet.assign(likely, mean, variance, share_out is not None)
            if share_out is None or seen is None:
                return log_r, wide.new_zeros(())
            return log_r, share_out(seen.unsqueeze(-1)).squeeze(-1)

        def refit(*found: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            log_r, log_share = share(*found)
            return meet.fit(log_r, log_a_in + log_share)

        found: tuple[Tensor, Tensor, Tensor] | None = None
        for t in range(1, iterations + 1):
            if found is None:
                mass, mean, variance = meet.fit(None, log_a_in + log_share)
            elif t < iterations and keep != "steps" and _may_repeat():
                # Backwards their couplings are made once more: those of one iteration at a time.
                mass, mean, variance = checkpoint(
                    refit, *found, use_reentrant=False, preserve_rng_state=False
                )
            else:
                log_r, log_share = share(*found)
                mass, mean, variance = meet.fit(log_r, log_a_in + log_share)
            if variant == "official":
                move = DAMPING * (before - mean)
                mean, variance = mean + move, variance + move.square()
                before = mean
            variance = variance + floor
            cost = _cost(variance, mass, beta_u, variant, n_in / n_out)
            reward = -5000 * beta_a if variant == "official" else beta_a
            logit = lambda_at(t, lambda_, lambda_schedule) * (reward - cost)
            pose, activation = mean + bias, logit.sigmoid()
            parents = Capsules(pose.view(*lead, n_out, d), activation.view(*lead, n_out))
            parents = Capsules(*(x.to(votes.dtype) for x in parents if x is not None))
            if keep == "steps" or (keep == "last" and t == iterations):
                log_rs = log_share.unsqueeze(-1)
                log_rs = log_rs if log_r is None else meet.laid_out(log_r) + log_rs
                r = log_rs.exp().to(votes.dtype).expand(n_batch, n_windows, n_in, n_out)
                steps.append(Step(None, r.reshape(*lead, n_in, n_out), parents))
            if t < iterations:
                log_a = torch.nn.functional.logsigmoid(logit)
                found = log_a - variance.log().sum(-1) / 2, mean, variance
    return Routed(parents, tuple(steps))


def _may_repeat() -> bool:
    """Whether a backward pass may ask for what was forgotten; a compiler decides by itself."""
    return torch.is_grad_enabled() and not torch.compiler.is_compiling()


def _first(wide: Tensor, n_out: int, child_id: Tensor | None, variant: EMVariant) -> Tensor:
    """The logarithms of couplings before anything is known, of one number or [p, i]."""
    first = wide.new_full((), 1 / n_out)
    if child_id is None or variant == "official":
        return first.log()
    flat = child_id.flatten()
    ones = wide.new_ones(len(flat))
    windows = torch.zeros_like(ones).scatter_add(0, flat, ones)[child_id]  # that see it
    return (first / windows).log()


class Tiled:
    """The steps from tiles of votes. Couplings are [i, j, p, b]."""

    def __init__(self, made_of: MadeOf):
        self.made_of = made_of

    def fit(self, log_r: Tensor | None, log_a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        made_of = self.made_of
        log_a = log_a.permute(2, 1, 0).unsqueeze(1)
        n_in, _, n_windows, n_batch = log_a.shape
        joint = log_a if log_r is None else log_r + log_a
        weight = joint.softmax(0).expand(n_in, made_of.matrices.shape[-3], n_windows, n_batch)
        mass = joint.exp().sum(0).expand(weight.shape[1:]).permute(2, 1, 0)
        mean, variance, _ = _moments(weight, *made_of)
        return mass, mean, variance

    def assign(
        self, likely: Tensor, mean: Tensor, variance: Tensor, wants_seen: bool
    ) -> tuple[Tensor, Tensor | None]:
        logits = likely.permute(2, 1, 0) - _distances(mean, variance, *self.made_of) / 2
        seen = logits.logsumexp(1).permute(2, 1, 0) if wants_seen else None
        return logits.log_softmax(1), seen

    def laid_out(self, log_r: Tensor) -> Tensor:
        return log_r.permute(3, 2, 0, 1)


def _moments_kernel(
    weight: Tensor,
    pose: Tensor,
    matrices: Tensor,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance [b, p, j, d] of votes of such weights [i, j, p, b], which sum to one over
    children, and what is left of the mean about itself."""
    vote_map = vote_map_of(pose, matrices, None, coordinates, sharing, kind, window)
    with without_autocast(pose):
        votes = TiledVotes(vote_map, dtype)
        means = pose.new_empty(
            (votes.n_batch, votes.n_windows, votes.n_out, votes.d_out), dtype=dtype
        )
        variances, rests = torch.empty_like(means), torch.empty_like(means)
        for lanes in votes.lanes():
            mean, variance, rest = (votes.parents(lanes) for _ in range(3))
            for tile in votes.tiles(lanes):
                v = votes.votes(tile, votes.seen(tile))  # [t, j, d, p, b]
                mean += v.mul_(of_tile(votes, weight, tile).unsqueeze(2)).sum((0, 3))
            for tile in votes.tiles(lanes):
                e = votes.votes(tile, votes.seen(tile)).sub_(mean.unsqueeze(-2))
                part = e * of_tile(votes, weight, tile).unsqueeze(2)
                rest += part.sum((0, 3))
                variance += part.mul_(e).sum((0, 3))
            for found, all_of_it in ((mean, means), (variance, variances), (rest, rests)):
                all_of_it.transpose(0, 1)[lanes] = votes.from_lanes(found, lanes)
    return means, variances, rests


def _moments_backward_kernel(
    of_mean: Tensor | None,
    of_variance: Tensor | None,
    means: Tensor,
    rests: Tensor,
    weight: Tensor,
    pose: Tensor,
    matrices: Tensor,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the four tensors, empty where there is no need."""
    vote_map = vote_map_of(pose, matrices, None, coordinates, sharing, kind, window)
    of_mean = torch.zeros_like(means) if of_mean is None else of_mean
    of_variance = torch.zeros_like(means) if of_variance is None else of_variance
    of_mean = of_mean - 2 * of_variance * rests
    with without_autocast(pose):
        votes = TiledVotes(vote_map, dtype)
        found = VoteGradients(votes, needs[1], needs[2], False, needs[3])
        of_weight = means.new_empty(weight.shape) if needs[0] else None
        for lanes in votes.lanes():
            mean, of_m, of_v = (
                votes.to_lanes(x.transpose(0, 1)[lanes]).unsqueeze(-2)
                for x in (means, of_mean, of_variance)
            )
            for tile in votes.tiles(lanes):
                seen = votes.seen(tile)
                e = votes.votes(tile, seen).sub_(mean)  # [t, j, d, p, b]
                slope = e * of_v
                both = slope + of_m
                if of_weight is not None:
                    write_tile(votes, of_weight, tile, e.mul_(both).sum(2))
                if found.any:
                    of_votes = both.add_(slope).mul_(of_tile(votes, weight, tile).unsqueeze(2))
                    found.add(tile, seen, of_votes)
        of_pose, of_matrices, _, of_coordinates = found.of(vote_map)
    return listed([of_weight, of_pose, of_matrices, of_coordinates], pose)


def _distances_kernel(
    mean: Tensor,
    variance: Tensor,
    pose: Tensor,
    matrices: Tensor,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
) -> Tensor:
    """Σ_h (V_ij − μ_j)² / σ_j², [i, j, p, b]."""
    vote_map = vote_map_of(pose, matrices, None, coordinates, sharing, kind, window)
    with without_autocast(pose):
        votes = TiledVotes(vote_map, dtype)
        shape = (votes.n_in, votes.n_out, votes.n_windows, votes.n_batch)
        distances = pose.new_empty(shape, dtype=dtype)
        for lanes in votes.lanes():
            m, spread = (
                votes.to_lanes(x.transpose(0, 1)[lanes]).unsqueeze(-2) for x in (mean, variance)
            )
            for tile in votes.tiles(lanes):
                e = votes.votes(tile, votes.seen(tile)).sub_(m)  # [t, j, d, p, b]
                write_tile(votes, distances, tile, e.square_().div_(spread).sum(2))
    return distances


def _distances_backward_kernel(
    of_distances: Tensor,
    mean: Tensor,
    variance: Tensor,
    pose: Tensor,
    matrices: Tensor,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the five tensors, empty where there is no need."""
    vote_map = vote_map_of(pose, matrices, None, coordinates, sharing, kind, window)
    of_mean, of_variance = torch.empty_like(mean), torch.empty_like(variance)
    with without_autocast(pose):
        votes = TiledVotes(vote_map, dtype)
        found = VoteGradients(votes, needs[2], needs[3], False, needs[4])
        for lanes in votes.lanes():
            m, spread = (
                votes.to_lanes(x.transpose(0, 1)[lanes]).unsqueeze(-2) for x in (mean, variance)
            )
            of_m, of_s = votes.parents(lanes), votes.parents(lanes)
            for tile in votes.tiles(lanes):
                seen = votes.seen(tile)
                scaled = votes.votes(tile, seen).sub_(m).div_(spread)  # [t, j, d, p, b]
                of_votes = scaled * (2 * of_tile(votes, of_distances, tile)).unsqueeze(2)
                of_m -= of_votes.sum((0, 3))
                of_s -= scaled.mul_(of_votes).sum((0, 3)) / 2
                if found.any:
                    found.add(tile, seen, of_votes)
            of_mean.transpose(0, 1)[lanes] = votes.from_lanes(of_m, lanes)
            of_variance.transpose(0, 1)[lanes] = votes.from_lanes(of_s, lanes)
        of_pose, of_matrices, _, of_coordinates = found.of(vote_map)
    return listed([of_mean, of_variance, of_pose, of_matrices, of_coordinates], pose)


def of_tile(votes: TiledVotes, couplings: Tensor, tile: Tile) -> Tensor:
    """What a tile has of couplings [i, j, p, b], as [t, j, p, b]."""
    return votes.of_couplings(couplings.permute(2, 3, 0, 1), tile).flatten(-2)


def write_tile(votes: TiledVotes, couplings: Tensor, tile: Tile, part: Tensor) -> None:
    """[t, j, p, b] to where they lie in couplings [i, j, p, b]."""
    there = votes.of_couplings(couplings.permute(2, 3, 0, 1), tile)
    there.copy_(votes.by_lane(part, tile.lanes))


_moments = torch.library.custom_op("torchcaps::em_moments", _moments_kernel, mutates_args=())
_moments_backward = torch.library.custom_op(
    "torchcaps::em_moments_backward", _moments_backward_kernel, mutates_args=()
)
_distances = torch.library.custom_op("torchcaps::em_distances", _distances_kernel, mutates_args=())
_distances_backward = torch.library.custom_op(
    "torchcaps::em_distances_backward", _distances_backward_kernel, mutates_args=()
)


def _counts(pose: Tensor, matrices: Tensor, options: Sequence[Any]) -> tuple[int, ...]:
    """Samples, windows, children, parents and pose components of the votes."""
    sharing, kind, window, _ = options
    like = vote_like(vote_map_of(pose, matrices, None, None, sharing, kind, window))
    *lead, n_in, n_out, d = like.shape
    n_batch, n_windows = (math.prod(lead[:-1]), lead[-1]) if window else (math.prod(lead), 1)
    return n_batch, n_windows, n_in, n_out, d


@_moments.register_fake
def _moments_shapes(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    pose, matrices, _, *options = arguments[1:]
    n_batch, n_windows, _, n_out, d = _counts(pose, matrices, options)
    mean = pose.new_empty((n_batch, n_windows, n_out, d), dtype=options[-1])
    return mean, torch.empty_like(mean), torch.empty_like(mean)


@_distances.register_fake
def _distances_shapes(*arguments: Any) -> Tensor:
    pose, matrices, _, *options = arguments[2:]
    n_batch, n_windows, n_in, n_out, _ = _counts(pose, matrices, options)
    made: Tensor = pose.new_empty((n_in, n_out, n_windows, n_batch), dtype=options[-1])
    return made


@_moments_backward.register_fake
def _moments_backward_shapes(*arguments: Any) -> list[Tensor]:
    return shapes_listed(arguments[4:8], arguments[-1], arguments[5])


@_distances_backward.register_fake
def _distances_backward_shapes(*arguments: Any) -> list[Tensor]:
    # Means and variances get theirs in any case: they cost nothing.
    return shapes_listed(arguments[1:6], (True, True, *arguments[-1][2:]), arguments[3])


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.options = inputs[5:]


def _keep_inputs_and_mean(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[0], output[2], *inputs[:4])
    ctx.options = inputs[4:]


def _differentiate_moments(
    ctx: Any, of_mean: Tensor | None, of_variance: Tensor | None, _: Tensor | None
) -> tuple[Tensor | None, ...]:
    needs = list(ctx.needs_input_grad[:4])
    found = _moments_backward(of_mean, of_variance, *ctx.saved_tensors, *ctx.options, needs)
    return wanted(ctx, found, needs)


def _differentiate_distances(ctx: Any, of_distances: Tensor) -> tuple[Tensor | None, ...]:
    needs = list(ctx.needs_input_grad[:5])
    found = _distances_backward(of_distances, *ctx.saved_tensors, *ctx.options, needs)
    return wanted(ctx, found, needs)


_moments.register_autograd(_differentiate_moments, setup_context=_keep_inputs_and_mean)
_distances.register_autograd(_differentiate_distances, setup_context=_keep_inputs)
once(_moments_backward, "fused EM routing", "em_routing")
once(_distances_backward, "fused EM routing", "em_routing")
