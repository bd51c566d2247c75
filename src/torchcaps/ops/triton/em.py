"""EM routing from a vote map by Triton kernels: votes live in the registers of a GPU.

The algorithm, its papers and its options are those of `ops.em_routing`, the equations those of
`ops.fused.em_routing`. Kernels meet the votes: they sum moments, measure distances, and go back.
Couplings are tensors [b, p, i, j] of PyTorch, so every variant and both ways to compete are known.

Departures: half precision is widened before it is multiplied. float32 is multiplied in full
precision, unless torch.set_float32_matmul_precision allows TensorFloat-32. float64 goes the fused
way, as do poses so large that the weights of one pair have more than 8192 numbers.
Ambiguities: none.

Kept are the children, the weights, the parents of every iteration and three tensors of couplings:
those of the last, as in the fused form.
Backwards through windows, the gradients of poses lie in memory once for every window that sees
them.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchcaps.ops import fused
from torchcaps.ops.fused.em import MadeOf, route
from torchcaps.ops.fused.tiles import vote_like
from torchcaps.ops.gradients import listed, once, shapes_listed, wanted
from torchcaps.ops.triton import votes as tiles
from torchcaps.ops.triton.runtime import check_available
from torchcaps.ops.triton.votes import Votes, fits, shape_of, shared_out
from torchcaps.types import Routed, VoteMap

__all__ = ["em_routing"]


def em_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents, with the options, values and gradients of
    `ops.fused.em_routing`."""
    votes = vote_like(vote_map)
    check_available(votes.device)
    if not fits(vote_map, votes):
        return fused.em_routing(vote_map, **options)
    return route(Kernels, vote_map, **options)


class Kernels:
    """The steps by kernels."""

    def __init__(self, made_of: MadeOf):
        pose = made_of.pose
        flat = pose.reshape(math.prod(pose.shape[:-2]), *pose.shape[-2:])
        self.made_of = (flat, *made_of[1:6])
        self.n_out = made_of.matrices.shape[-3]

    def fit(self, log_r: Tensor | None, log_a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        joint = log_a.unsqueeze(-1)
        joint = joint if log_r is None else log_r + joint
        share, mass = joint.softmax(2), joint.exp().sum(2)
        share, mass = (x.expand(*x.shape[:-1], self.n_out) for x in (share, mass))
        mean, variance, _ = _moments(share, *self.made_of)
        return mass, mean, variance

    def assign(
        self, likely: Tensor, mean: Tensor, variance: Tensor, wants_seen: bool
    ) -> tuple[Tensor, Tensor | None]:
        logits = likely.unsqueeze(2) - _distances(mean, variance, *self.made_of) / 2
        seen = logits.logsumexp(-1) if wants_seen else None
        return logits.log_softmax(-1), seen

    def laid_out(self, log_r: Tensor) -> Tensor:
        return log_r


def _moments_of(
    votes: Votes, share: Tensor, mean: Tensor | None, variance: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Σ_i w_ij e_ij and, from a mean, Σ_i w_ij e_ij², [b, j, d]."""
    from torchcaps.ops.triton import em_kernels

    splits, size = votes.by_lane(tiles.CHILDREN, votes.tiles)
    first = votes.parents(splits)
    second = None if mean is None else votes.parents(splits)
    votes.run(
        em_kernels.moments,
        splits * votes.tiles * votes.lanes,
        *(*votes.made_of(), share, mean, variance, first, second),
        *(*votes.sizes(), size),
        **votes.constants(),
    )
    summed = first.sum(0)
    return summed, summed if second is None else second.sum(0)


def _slopes(
    votes: Votes,
    share: Tensor | None,
    mean: Tensor,
    alpha: Tensor | None,
    nu: Tensor,
    of_share: Tensor | None,
    needs: Sequence[bool],
) -> list[Tensor | None]:
    """∂w to `of_share`, and the gradients of pose, weight and coordinates."""
    from torchcaps.ops.triton import em_kernels

    splits, size = votes.by_child()
    gradients = votes.gradients([*needs[:2], False, needs[2]])
    of_pose, of_weight, _, of_coordinates = gradients
    programs = splits * votes.shape.types
    # Gradients are summed over samples, each by one program.
    parts, lanes = (1, votes.lanes) if any(needs) else shared_out(votes.lanes, programs, 1)
    for tile in range(votes.tiles):
        votes.run(
            em_kernels.slopes,
            parts * programs,
            *(*votes.made_of(), share, mean, alpha, nu),
            *(of_share, of_pose, of_weight, of_coordinates),
            *(*votes.sizes(), size, lanes * votes.blocks.lanes, tile * votes.blocks.parents),
            **votes.constants(),
            ADDS=tile > 0,
        )
    of_pose, of_weight, _, of_coordinates = votes.gathered(gradients)
    return [of_pose, of_weight, of_coordinates]


def _votes_of(
    pose: Tensor,
    weight: Tensor,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
) -> Votes:
    """Without their bias, which moves parents and nothing else."""
    return Votes(pose, weight, None, coordinates, sharing, kind, window)


def _moments_kernel(
    share: Tensor,
    pose: Tensor,
    weight: Tensor,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance [b, p, j, d] of votes of such weights [b, p, i, j], which sum to one over
    children, and what is left of the mean about itself."""
    made_of = (pose, weight, coordinates, sharing, kind, window)
    like: tuple[Tensor, Tensor, Tensor] = _moments_shapes(share, *made_of)
    if not share.numel():
        return like
    votes, share = _votes_of(*made_of), share.contiguous()
    mean, _ = _moments_of(votes, share, None, None)
    rest, variance = _moments_of(votes, share, mean, None)
    lead = like[0].shape
    return mean.view(lead), variance.view(lead), rest.view(lead)


def _moments_backward_kernel(
    of_mean: Tensor | None,
    of_variance: Tensor | None,
    mean: Tensor,
    rest: Tensor,
    share: Tensor,
    pose: Tensor,
    weight: Tensor,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the four tensors, empty where there is no need."""
    inputs = (share, pose, weight, coordinates)
    if not share.numel():
        return _nothing(inputs, needs)
    of_variance = torch.zeros_like(mean) if of_variance is None else of_variance.contiguous()
    alpha = -2 * of_variance * rest
    alpha = alpha if of_mean is None else of_mean + alpha
    votes = _votes_of(pose, weight, coordinates, sharing, kind, window)
    of_share = votes.empty(*share.shape) if needs[0] else None
    given = (share.contiguous(), mean.contiguous(), alpha.contiguous(), of_variance)
    return _listed([of_share, *_slopes(votes, *given, of_share, needs[1:])], inputs)


def _distances_kernel(
    mean: Tensor,
    variance: Tensor,
    pose: Tensor,
    weight: Tensor,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
) -> Tensor:
    """Σ_h (V_ij − μ_j)² / σ_j², [b, p, i, j]."""
    made_of = (pose, weight, coordinates, sharing, kind, window)
    distances: Tensor = _distances_shapes(mean, variance, *made_of)
    if distances.numel():
        nu = variance.reciprocal().contiguous()
        given = (None, mean.contiguous(), None, nu, distances)
        _slopes(_votes_of(*made_of), *given, (False,) * 3)
    return distances


def _distances_backward_kernel(
    of_distances: Tensor,
    mean: Tensor,
    variance: Tensor,
    pose: Tensor,
    weight: Tensor,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the five tensors, empty where there is no need."""
    inputs = (mean, variance, pose, weight, coordinates)
    if not of_distances.numel():
        return _nothing(inputs, (True, True, *needs[2:]))
    votes = _votes_of(pose, weight, coordinates, sharing, kind, window)
    mean, variance, of_distances = (x.contiguous() for x in (mean, variance, of_distances))
    first, second = _moments_of(votes, of_distances, mean, variance)
    of_made: list[Tensor | None] = [None] * 3
    if any(needs[2:]):
        nu = variance.reciprocal()
        of_made = _slopes(votes, of_distances, mean, None, nu, None, needs[2:])
    return _listed([-2 * first, -second, *of_made], inputs)


def _nothing(inputs: Sequence[Tensor | None], needs: Sequence[bool]) -> list[Tensor]:
    """Gradients where nobody routes."""
    pairs = zip(inputs, needs, strict=True)
    return _listed([torch.zeros_like(x) if x is not None and n else None for x, n in pairs], inputs)


def _listed(gradients: Sequence[Tensor | None], inputs: Sequence[Tensor | None]) -> list[Tensor]:
    """As tensors like these."""
    found = (
        None if mine is None or x is None else mine.to(x.dtype).view(x.shape)
        for mine, x in zip(gradients, inputs, strict=True)
    )
    like = next(x for x in inputs if x is not None)
    return listed(list(found), like)


_moments = torch.library.custom_op("torchcaps::triton_em_moments", _moments_kernel, mutates_args=())
_moments_backward = torch.library.custom_op(
    "torchcaps::triton_em_moments_backward", _moments_backward_kernel, mutates_args=()
)
_distances = torch.library.custom_op(
    "torchcaps::triton_em_distances", _distances_kernel, mutates_args=()
)
_distances_backward = torch.library.custom_op(
    "torchcaps::triton_em_distances_backward", _distances_backward_kernel, mutates_args=()
)


@_moments.register_fake
def _moments_shapes(
    share: Tensor, pose: Tensor, weight: Tensor, *arguments: Any
) -> tuple[Tensor, Tensor, Tensor]:
    shape = shape_of(pose, weight, *arguments[1:])
    mean = share.new_empty((*share.shape[:2], shape.parents, shape.size))
    return mean, torch.empty_like(mean), torch.empty_like(mean)


@_distances.register_fake
def _distances_shapes(mean: Tensor, _: Tensor, pose: Tensor, *arguments: Any) -> Tensor:
    weight, _, *rest = arguments
    shape = shape_of(pose, weight, *rest)
    return mean.new_empty((*mean.shape[:2], shape.children, shape.parents))


@_moments_backward.register_fake
def _moments_backward_shapes(*arguments: Any) -> list[Tensor]:
    return shapes_listed(arguments[4:8], arguments[-1], arguments[4])


@_distances_backward.register_fake
def _distances_backward_shapes(*arguments: Any) -> list[Tensor]:
    # Means and variances get theirs in any case: they cost nothing.
    return shapes_listed(arguments[1:6], (True, True, *arguments[-1][2:]), arguments[1])


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
once(_moments_backward, "Triton EM routing", "em_routing")
once(_distances_backward, "Triton EM routing", "em_routing")
