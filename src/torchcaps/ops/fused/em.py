"""EM routing from a vote map: the votes are made tile by tile, in both passes, never stored.

The algorithm, its papers, its options and its ambiguities are those of `ops.em_routing`. Votes are
met in two places alone, with weights w_ij of the mean that sum to one over children:

μ_j = Σ_i w_ij V_ij,   σ_j² = Σ_i w_ij (V_ij − μ_j)²        two passes: exact where σ is small
z_ij = Σ_h (V_ij^h − μ_j^h)² / (σ_j^h)²

All else is about couplings or parents, and differentiated as in the plain op. Backwards, with
e_ij = V_ij − μ_j, from α_j and ν_j, the gradients of μ_j and σ_j², and κ_ij, that of z_ij,

    ∂w_ij = ⟨e_ij, α_j + ν_j e_ij⟩,   ∂V_ij = w_ij (α_j + 2 ν_j e_ij)        of the moments
    ∂V_ij = 2 κ_ij e_ij / σ_j²,   ∂μ_j = −Σ_i ∂V_ij,   ∂σ_j² = −Σ_i κ_ij (e_ij / σ_j²)²

A number of a parent, the same for all children, is left out of ∂w: along weights that sum to one it
is no gradient. A damped mean, μ = (1 − η) Σ_i w_ij V_ij + η μ_before, adds to α_j what σ_j² owes to
it, −2 ν_j Σ_i w_ij e_ij = −2 ν_j (μ_j − μ_before) η / (1 − η).

A bias is in every vote: its gradient is that of a shift of all of them, and needs no votes.

Departures: half precision votes are not rounded before they are routed, as a vote tensor is; they
are made in float32, and only parents and couplings are rounded.
Ambiguities: none.

Kept are the children, the weights, the parents and three tensors of couplings [b, i, j] of every
iteration. No gradient of the gradient.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.ops.checks import (
    check_broadcast,
    check_choice,
    check_iterations,
    check_keep,
    check_votes,
    widen,
    without_autocast,
)
from torchcaps.ops.fused.dynamic import _vote_map
from torchcaps.ops.fused.tiles import Tile, TiledVotes, VoteGradients, vote_like
from torchcaps.ops.routing.em import (
    ANNEALING,
    DAMPING,
    FLOOR,
    LEAST_ACTIVATION,
    Compete,
    EMVariant,
    _check_child_id,
    _checked,
    _cost,
    _counted,
    _over_windows,
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
    votes = vote_like(vote_map)
    check_votes(votes)
    check_iterations(iterations)
    check_choice("variant", variant, get_args(EMVariant))
    check_choice("compete", compete, get_args(Compete))
    check_keep(keep)
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
    bias, coordinates = vote_map.bias, vote_map.coordinates
    made_of = (
        vote_map.children.pose,
        vote_map.weight,
        None if bias is None else bias.to(wide.dtype).expand(n_out, d),
        None if coordinates is None else coordinates.to(wide.dtype).expand(n_in, d),
        vote_map.sharing,
        vote_map.pose,
        [] if window is None else [*window.child_grid, *window.kernel, *window.stride],
        wide.dtype,
    )
    child_id = None if child_id is None else _counted(child_id)
    normalise = _over_parents if child_id is None else _by_child(child_id)
    steps = []
    with without_autocast(votes):
        a_in = widen(activation).to(wide.dtype).clamp_min(LEAST_ACTIVATION)
        a_in = a_in.reshape(n_batch, n_windows, n_in).permute(2, 1, 0).unsqueeze(1)  # [i, 1, p, b]
        log_a_in = a_in.log()
        beta_a, beta_u = beta_a.to(wide.dtype), beta_u.to(wide.dtype)
        couplings = (n_in, n_out, n_windows, n_batch)
        log_r = _first(wide, n_out, child_id, variant).log()  # [i, j, p, b], or 1 for an axis
        is_damped = variant == "official"
        before = wide.new_zeros(n_batch, n_windows, n_out, d) if is_damped else None
        for t in range(1, iterations + 1):
            weight = (log_r + log_a_in).softmax(0).expand(couplings)
            mass = (log_r.exp() * a_in).sum(0).expand(couplings[1:]).permute(2, 1, 0)  # [b, p, j]
            mean, variance = _moments(weight, before, *made_of)  # [b, p, j, d]
            before = mean if is_damped else None
            variance = variance + floor
            cost = _cost(variance, mass, beta_u, variant, n_in / n_out)
            reward = -5000 * beta_a if variant == "official" else beta_a
            logit = lambda_ * (1 - ANNEALING**t) * (reward - cost)
            parents = Capsules(mean.view(*lead, n_out, d), logit.sigmoid().view(*lead, n_out))
            parents = Capsules(*(x.to(votes.dtype) for x in parents if x is not None))
            if keep == "steps" or (keep == "last" and t == iterations):
                r = log_r.exp().expand(couplings).permute(3, 2, 0, 1)
                steps.append(Step(None, r.reshape(*lead, n_in, n_out).to(votes.dtype), parents))
            if t < iterations:
                log_a = torch.nn.functional.logsigmoid(logit)
                likely = (log_a - variance.log().sum(-1) / 2).permute(2, 1, 0)  # [j, p, b]
                log_r = normalise(likely - _distances(mean, variance, *made_of) / 2)
    return Routed(parents, tuple(steps))


def _first(wide: Tensor, n_out: int, child_id: Tensor | None, variant: EMVariant) -> Tensor:
    """The couplings before anything is known, [1, 1, 1, 1] or [i, 1, p, 1]."""
    first = wide.new_full((1, 1, 1, 1), 1 / n_out)
    if child_id is None or variant == "official":
        return first
    flat = child_id.flatten()
    ones = wide.new_ones(len(flat))
    windows = torch.zeros_like(ones).scatter_add(0, flat, ones)[child_id]  # [p, i]: that see it
    return first / windows.t().unsqueeze(1).unsqueeze(-1)


def _over_parents(logits: Tensor) -> Tensor:
    return logits.log_softmax(1)


def _by_child(child_id: Tensor) -> Callable[[Tensor], Tensor]:
    """As `_over_windows`, of [i, j, p, b]."""
    normalise = _over_windows(child_id)
    return lambda logits: normalise(logits.permute(3, 2, 0, 1)).permute(2, 3, 1, 0)


def _moments_kernel(
    weight: Tensor,
    before: Tensor | None,
    pose: Tensor,
    matrices: Tensor,
    bias: Tensor | None,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Mean and variance [b, p, j, d] of votes of such weights [i, j, p, b], which sum to one over
    children. With a mean `before` the mean is damped."""
    vote_map = _vote_map(pose, matrices, bias, coordinates, sharing, kind, window)
    with without_autocast(pose):
        votes = TiledVotes(vote_map, dtype)
        means = pose.new_empty(
            (votes.n_batch, votes.n_windows, votes.n_out, votes.d_out), dtype=dtype
        )
        variances = torch.empty_like(means)
        for lanes in votes.lanes():
            mean, variance = votes.parents(lanes), votes.parents(lanes)
            for tile in votes.tiles(lanes):
                v = votes.votes(tile, votes.seen(tile))  # [t, j, d, p, b]
                mean += v.mul_(_part(votes, weight, tile).unsqueeze(2)).sum((0, 3))
            if before is not None:
                old = votes.to_lanes(before.transpose(0, 1)[lanes])
                mean = (1 - DAMPING) * mean + DAMPING * old
            for tile in votes.tiles(lanes):
                e = votes.votes(tile, votes.seen(tile)).sub_(mean.unsqueeze(-2))
                e = e.square_().mul_(_part(votes, weight, tile).unsqueeze(2))
                variance += e.sum((0, 3))
            means.transpose(0, 1)[lanes] = votes.from_lanes(mean, lanes)
            variances.transpose(0, 1)[lanes] = votes.from_lanes(variance, lanes)
    return means, variances


def _moments_backward_kernel(
    of_mean: Tensor | None,
    of_variance: Tensor | None,
    means: Tensor,
    weight: Tensor,
    before: Tensor | None,
    pose: Tensor,
    matrices: Tensor,
    bias: Tensor | None,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the six tensors, empty where there is no need."""
    vote_map = _vote_map(pose, matrices, bias, coordinates, sharing, kind, window)
    of_mean = torch.zeros_like(means) if of_mean is None else of_mean
    of_variance = torch.zeros_like(means) if of_variance is None else of_variance
    of_before = None
    with without_autocast(pose):
        of_votes_in_all = of_mean  # Σ_i ∂V_ij
        if before is not None:
            owed = 2 * DAMPING / (1 - DAMPING) * of_variance * (means - before)
            of_mean = of_mean - owed
            of_before, of_mean = DAMPING * of_mean, (1 - DAMPING) * of_mean
            of_votes_in_all = of_mean + owed
        votes = TiledVotes(vote_map, dtype)
        found = VoteGradients(votes, needs[2], needs[3], False, needs[5])
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
                    _write(votes, of_weight, tile, e.mul_(both).sum(2))
                if found.any:
                    of_votes = both.add_(slope).mul_(_part(votes, weight, tile).unsqueeze(2))
                    found.add(tile, seen, of_votes)
        of_map = found.of(vote_map)
        of_map[2] = of_votes_in_all.sum((0, 1)) if needs[4] else None
        gradients = [of_weight, of_before if needs[1] else None, *of_map]
    return [pose.new_empty(0) if x is None else x for x in gradients]


def _distances_kernel(
    mean: Tensor,
    variance: Tensor,
    pose: Tensor,
    matrices: Tensor,
    bias: Tensor | None,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
) -> Tensor:
    """Σ_h (V_ij − μ_j)² / σ_j², [i, j, p, b]."""
    vote_map = _vote_map(pose, matrices, bias, coordinates, sharing, kind, window)
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
                _write(votes, distances, tile, e.square_().div_(spread).sum(2))
    return distances


def _distances_backward_kernel(
    of_distances: Tensor,
    mean: Tensor,
    variance: Tensor,
    pose: Tensor,
    matrices: Tensor,
    bias: Tensor | None,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the six tensors, empty where there is no need."""
    vote_map = _vote_map(pose, matrices, bias, coordinates, sharing, kind, window)
    of_mean, of_variance = torch.empty_like(mean), torch.empty_like(variance)
    with without_autocast(pose):
        votes = TiledVotes(vote_map, dtype)
        found = VoteGradients(votes, needs[2], needs[3], False, needs[5])
        for lanes in votes.lanes():
            m, spread = (
                votes.to_lanes(x.transpose(0, 1)[lanes]).unsqueeze(-2) for x in (mean, variance)
            )
            of_m, of_s = votes.parents(lanes), votes.parents(lanes)
            for tile in votes.tiles(lanes):
                seen = votes.seen(tile)
                scaled = votes.votes(tile, seen).sub_(m).div_(spread)  # [t, j, d, p, b]
                of_votes = scaled * (2 * _part(votes, of_distances, tile)).unsqueeze(2)
                of_m -= of_votes.sum((0, 3))
                of_s -= scaled.mul_(of_votes).sum((0, 3)) / 2
                if found.any:
                    found.add(tile, seen, of_votes)
            of_mean.transpose(0, 1)[lanes] = votes.from_lanes(of_m, lanes)
            of_variance.transpose(0, 1)[lanes] = votes.from_lanes(of_s, lanes)
        of_map = found.of(vote_map)
        of_map[2] = -of_mean.sum((0, 1)) if needs[4] else None
        gradients = [of_mean, of_variance, *of_map]
    return [pose.new_empty(0) if x is None else x for x in gradients]


def _part(votes: TiledVotes, couplings: Tensor, tile: Tile) -> Tensor:
    """What a tile has of couplings [i, j, p, b], as [t, j, p, b]."""
    return votes.of_couplings(couplings.permute(2, 3, 0, 1), tile).flatten(-2)


def _write(votes: TiledVotes, couplings: Tensor, tile: Tile, part: Tensor) -> None:
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
    like = vote_like(_vote_map(pose, matrices, None, None, sharing, kind, window))
    *lead, n_in, n_out, d = like.shape
    n_batch, n_windows = (math.prod(lead[:-1]), lead[-1]) if window else (math.prod(lead), 1)
    return n_batch, n_windows, n_in, n_out, d


@_moments.register_fake
def _moments_shapes(*arguments: Any) -> tuple[Tensor, Tensor]:
    pose, matrices, _, _, *options = arguments[2:]
    n_batch, n_windows, _, n_out, d = _counts(pose, matrices, options)
    mean = pose.new_empty((n_batch, n_windows, n_out, d), dtype=options[-1])
    return mean, torch.empty_like(mean)


@_distances.register_fake
def _distances_shapes(*arguments: Any) -> Tensor:
    pose, matrices, _, _, *options = arguments[2:]
    n_batch, n_windows, n_in, n_out, _ = _counts(pose, matrices, options)
    made: Tensor = pose.new_empty((n_in, n_out, n_windows, n_batch), dtype=options[-1])
    return made


def _gradient_shapes(tensors: Sequence[Tensor | None], needs: Sequence[bool]) -> list[Tensor]:
    pose = tensors[2]
    assert pose is not None
    return [
        pose.new_empty(0) if x is None or not need else x.new_empty(x.shape)
        for x, need in zip(tensors, needs, strict=True)
    ]


@_moments_backward.register_fake
def _moments_backward_shapes(*arguments: Any) -> list[Tensor]:
    return _gradient_shapes(arguments[3:9], arguments[-1])


@_distances_backward.register_fake
def _distances_backward_shapes(*arguments: Any) -> list[Tensor]:
    # Means and variances get theirs in any case: they cost nothing.
    return _gradient_shapes(arguments[1:7], (True, True, *arguments[-1][2:]))


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:6])
    ctx.options = inputs[6:]


def _keep_inputs_and_mean(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[0], *inputs[:6])
    ctx.options = inputs[6:]


def _gradients(ctx: Any, found: list[Tensor]) -> tuple[Tensor | None, ...]:
    needs = ctx.needs_input_grad[:6]
    wanted = (x if need else None for x, need in zip(found, needs, strict=True))
    return (*wanted, *(None,) * len(ctx.options))


def _differentiate_moments(
    ctx: Any, of_mean: Tensor | None, of_variance: Tensor | None
) -> tuple[Tensor | None, ...]:
    needs = list(ctx.needs_input_grad[:6])
    arguments = (*ctx.saved_tensors, *ctx.options, needs)
    return _gradients(ctx, _moments_backward(of_mean, of_variance, *arguments))


def _differentiate_distances(ctx: Any, of_distances: Tensor) -> tuple[Tensor | None, ...]:
    needs = list(ctx.needs_input_grad[:6])
    return _gradients(
        ctx, _distances_backward(of_distances, *ctx.saved_tensors, *ctx.options, needs)
    )


def _refuse(ctx: Any, *_: Any) -> None:
    raise TorchcapsError(
        "fused EM routing gives gradients, but no gradients of gradients; route the materialised "
        "votes with ops.em_routing where create_graph=True is needed."
    )


_moments.register_autograd(_differentiate_moments, setup_context=_keep_inputs_and_mean)
_distances.register_autograd(_differentiate_distances, setup_context=_keep_inputs)
_moments_backward.register_autograd(_refuse)
_distances_backward.register_autograd(_refuse)
