"""Distance routing from a vote map by Triton kernels: votes live in the registers of a GPU.

The algorithm, its papers and its options are those of `ops.distance_routing`. Kernels meet the
votes: they mix them, measure how far they are from parents, and go back. Distances and couplings
are tensors [b, i, j] of PyTorch, with all that is made of them.

Departures: half precision is widened before it is multiplied. float32 is multiplied in full
precision, unless torch.set_float32_matmul_precision allows TensorFloat-32. float64 goes the fused
way, as do poses so large that the weights of one pair have more than 8192 numbers.
Ambiguities: none.

Kept are the children, the weights, the parents, and distances and couplings of every iteration.
Backwards through windows, the gradients of poses lie in memory once for every window that sees
them.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchcaps.ops import fused
from torchcaps.ops.checks import without_autocast
from torchcaps.ops.fused.distance import _rate, checked
from torchcaps.ops.fused.tiles import vote_like
from torchcaps.ops.gradients import once, shapes_listed, wanted
from torchcaps.ops.routing.common import capsules
from torchcaps.ops.routing.distance import DetachVotes, Scale
from torchcaps.ops.squash import EPSILON, Squash
from torchcaps.ops.squash import squash as g
from torchcaps.ops.triton import votes as tiles
from torchcaps.ops.triton.em import _listed, _nothing
from torchcaps.ops.triton.runtime import check_available
from torchcaps.ops.triton.votes import Votes, fits, shape_of, shared_out
from torchcaps.types import Keep, Routed, Step, VoteMap

__all__ = ["distance_routing"]

TINY = torch.finfo(torch.float32).tiny


def distance_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map, whose children are as long as their activations, to parents,
    with the options, values and gradients of `ops.fused.distance_routing`."""
    votes = vote_like(vote_map)
    check_available(votes.device)
    if not fits(vote_map, votes):
        return fused.distance_routing(vote_map, **options)
    return _route(vote_map, **options)


def _route(
    vote_map: VoteMap,
    *,
    iterations: int = 3,
    scale: Scale | Tensor = "sample",
    bias: Tensor | None = None,
    p: float = 0.9,
    squash: Squash = "hinton",
    detach: DetachVotes = "none",
    keep: Keep = "none",
) -> Routed:
    votes = vote_like(vote_map)
    length, log_odds = checked(vote_map, votes, iterations, scale, bias, p, squash, detach, keep)
    *lead, n_in, n_out, size = votes.shape
    pose, window = vote_map.children.pose, vote_map.window
    vote_bias, coordinates = vote_map.bias, vote_map.coordinates
    # A batch may have several axes; samples seen through windows are as many samples.
    whole = (
        length.float().expand(*lead, n_in).reshape(math.prod(lead), n_in),
        pose.reshape(math.prod(pose.shape[:-2]), *pose.shape[-2:]),
        vote_map.weight,
        None if vote_bias is None else vote_bias.float().expand(n_out, size),
        None if coordinates is None else coordinates.float().expand(n_in, size),
    )
    constant = tuple(None if x is None else x.detach() for x in whole)
    looks = [] if window is None else [*window.child_grid, *window.kernel, *window.stride]
    rest = (vote_map.sharing, vote_map.pose, looks)
    steps, used, c, share = [], [], None, 1 / n_out
    with without_autocast(votes):
        bias = None if bias is None else bias.float()
        for t in range(1, iterations + 1):
            last = t == iterations
            made_of = (*(constant if detach == "votes" and not last else whole), *rest)
            s = _mixed(c, *made_of).view(*lead, n_out, size)
            s = s * share if c is None else s
            v = g(s if bias is None else s + bias, squash)
            if keep == "steps" or (keep == "last" and last):
                coupling = votes.new_full((*lead, n_in, n_out), share)
                if c is not None:
                    coupling = c.view(*lead, n_in, n_out).to(votes.dtype)
                steps.append(Step(None, coupling, capsules(v, votes.dtype)))
            if not last:
                d = _measured(v.reshape(-1, n_out, size), *made_of)
                d = d.view(*lead, n_in, n_out)
                if isinstance(scale, Tensor):
                    d_o = scale[t - 1].to(d.dtype)
                else:
                    d_o = d.mean((-2, -1)) if scale == "sample" else d.mean()
                logits = d * _rate(d_o, log_odds)[..., None, None]
                c = logits.softmax(-1).view(-1, n_in, n_out)
                used.append(d_o)
    distances = torch.stack(used, -1) if used else None
    return Routed(capsules(v, votes.dtype), tuple(steps), distances)


def _blend(votes: Votes, length: Tensor, share: Tensor | None, middle: Tensor | None) -> Tensor:
    """Σ_i x_ij û_ij, or with parents Σ_i x_ij (û_ij − v_j), [b, j, d]."""
    from torchcaps.ops.triton import distance_kernels

    splits, size = votes.by_lane(tiles.CHILDREN, votes.tiles)
    partial = votes.parents(splits)
    votes.run(
        distance_kernels.blend,
        splits * votes.tiles * votes.lanes,
        *(*votes.made_of(), length, share, middle, partial),
        *(*votes.sizes(), size),
        TINY=TINY,
        **votes.constants(),
    )
    return partial.sum(0)


def _compare(
    votes: Votes,
    length: Tensor,
    share: Tensor | None,
    others: Tensor,
    found: Tensor | None,
    measures: bool,
    needs: Sequence[bool],
) -> list[Tensor | None]:
    """Distances or products to `found`, and the gradients of length, pose, weight, vote bias and
    coordinates."""
    from torchcaps.ops.triton import distance_kernels

    splits, size = votes.by_child()
    of_length = votes.empty(*length.shape) if needs[0] else None
    gradients = votes.gradients(needs[1:])
    programs = splits * votes.shape.types
    # Gradients are summed over samples, each by one program.
    parts, lanes = (1, votes.lanes) if any(needs) else shared_out(votes.lanes, programs, 1)
    for tile in range(votes.tiles):
        votes.run(
            distance_kernels.compare,
            parts * programs,
            *(*votes.made_of(), length, share, others, found, of_length, *gradients),
            *(*votes.sizes(), size, lanes * votes.blocks.lanes, tile * votes.blocks.parents),
            TINY=TINY,
            EPSILON=EPSILON,
            MEASURES=measures,
            ADDS=tile > 0,
            **votes.constants(),
        )
    return [of_length, *votes.gathered(gradients)]


def _mixed_kernel(
    share: Tensor | None,
    length: Tensor,
    pose: Tensor,
    weight: Tensor,
    vote_bias: Tensor | None,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
) -> Tensor:
    """Σ_i c_ij û_ij [b, j, d] of such couplings [b, i, j]; without any they are 1."""
    made_of = (pose, weight, vote_bias, coordinates, sharing, kind, window)
    sums: Tensor = _mixed_shapes(share, length, *made_of)
    if not sums.numel():
        return sums
    return _blend(Votes(*made_of), length.contiguous(), _laid(share), None)


def _mixed_backward_kernel(
    of_sums: Tensor,
    share: Tensor | None,
    length: Tensor,
    pose: Tensor,
    weight: Tensor,
    vote_bias: Tensor | None,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the six tensors, empty where there is no need."""
    inputs = (share, length, pose, weight, vote_bias, coordinates)
    if not of_sums.numel():
        return _nothing(inputs, needs)
    votes = Votes(pose, weight, vote_bias, coordinates, sharing, kind, window)
    of_share = (
        None
        if share is None or not needs[0]
        else torch.empty_like(share, memory_format=torch.contiguous_format)
    )
    given = (length.contiguous(), _laid(share), of_sums.contiguous(), of_share)
    return _listed([of_share, *_compare(votes, *given, False, needs[1:])], inputs)


def _measured_kernel(
    parents: Tensor,
    length: Tensor,
    pose: Tensor,
    weight: Tensor,
    vote_bias: Tensor | None,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
) -> Tensor:
    """sqrt(‖v_j − û_ij‖² + ε), [b, i, j]."""
    made_of = (pose, weight, vote_bias, coordinates, sharing, kind, window)
    distances: Tensor = _measured_shapes(parents, length, *made_of)
    if distances.numel():
        given = (length.contiguous(), None, parents.contiguous(), distances)
        _compare(Votes(*made_of), *given, True, (False,) * 5)
    return distances


def _measured_backward_kernel(
    of_distances: Tensor,
    distances: Tensor,
    parents: Tensor,
    length: Tensor,
    pose: Tensor,
    weight: Tensor,
    vote_bias: Tensor | None,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the six tensors, empty where there is no need."""
    inputs = (parents, length, pose, weight, vote_bias, coordinates)
    if not distances.numel():
        return _nothing(inputs, needs)
    votes = Votes(pose, weight, vote_bias, coordinates, sharing, kind, window)
    slopes = (of_distances / distances).contiguous()
    length, parents = length.contiguous(), parents.contiguous()
    of_parents = -_blend(votes, length, slopes, parents) if needs[0] else None
    of_made: list[Tensor | None] = [None] * 5
    if any(needs[1:]):
        of_made = _compare(votes, length, slopes, parents, None, True, needs[1:])
    return _listed([of_parents, *of_made], inputs)


def _laid(share: Tensor | None) -> Tensor | None:
    return None if share is None else share.contiguous()


_mixed = torch.library.custom_op("torchcaps::triton_distance_mixed", _mixed_kernel, mutates_args=())
_mixed_backward = torch.library.custom_op(
    "torchcaps::triton_distance_mixed_backward", _mixed_backward_kernel, mutates_args=()
)
_measured = torch.library.custom_op(
    "torchcaps::triton_distance_measured", _measured_kernel, mutates_args=()
)
_measured_backward = torch.library.custom_op(
    "torchcaps::triton_distance_measured_backward", _measured_backward_kernel, mutates_args=()
)


@_mixed.register_fake
def _mixed_shapes(
    share: Tensor | None, length: Tensor, pose: Tensor, weight: Tensor, *arguments: Any
) -> Tensor:
    _, _, *rest = arguments
    shape = shape_of(pose, weight, *rest)
    return length.new_empty((shape.batch, shape.parents, shape.size))


@_measured.register_fake
def _measured_shapes(parents: Tensor, length: Tensor, *arguments: Any) -> Tensor:
    return length.new_empty((*length.shape, parents.shape[1]))


@_mixed_backward.register_fake
def _mixed_backward_shapes(*arguments: Any) -> list[Tensor]:
    return shapes_listed(arguments[1:7], arguments[-1], arguments[2])


@_measured_backward.register_fake
def _measured_backward_shapes(*arguments: Any) -> list[Tensor]:
    return shapes_listed(arguments[2:8], arguments[-1], arguments[2])


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:6])
    ctx.options = inputs[6:]


def _keep_inputs_and_distances(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output, *inputs[:6])
    ctx.options = inputs[6:]


def _differentiate_mixed(ctx: Any, of_sums: Tensor) -> tuple[Tensor | None, ...]:
    needs = list(ctx.needs_input_grad[:6])
    found = _mixed_backward(of_sums, *ctx.saved_tensors, *ctx.options, needs)
    return wanted(ctx, found, needs)


def _differentiate_measured(ctx: Any, of_distances: Tensor) -> tuple[Tensor | None, ...]:
    needs = list(ctx.needs_input_grad[:6])
    found = _measured_backward(of_distances, *ctx.saved_tensors, *ctx.options, needs)
    return wanted(ctx, found, needs)


_mixed.register_autograd(_differentiate_mixed, setup_context=_keep_inputs)
_measured.register_autograd(_differentiate_measured, setup_context=_keep_inputs_and_distances)
once(_mixed_backward, "Triton distance routing", "distance_routing")
once(_measured_backward, "Triton distance routing", "distance_routing")
