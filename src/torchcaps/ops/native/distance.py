"""Distance routing from a vote map by a native kernel: votes live in a core's first cache.

The algorithm, its papers, its options and its ambiguities are those of `ops.distance_routing`; the
equations of both passes are those of `ops.fused.distance_routing`, and so is what is kept for the
backward pass. The forward pass holds no distances: they are measured twice. The backward pass makes
the gradients of all iterations at once.

Departures: half precision is computed in float32, as in the fused form. Numbers are float32, so
float64 goes the fused way, as do windows, biases that differ between samples, other devices, and
every call where there is no native library.
Ambiguities: none.
"""

import ctypes
import math
from typing import Any, get_args

import torch
from torch import Tensor

from torchcaps.ops import fused
from torchcaps.ops.fused.distance import checked
from torchcaps.ops.fused.dynamic import of_all_samples, routed
from torchcaps.ops.fused.tiles import vote_like
from torchcaps.ops.gradients import listed, once, shapes_listed, wanted
from torchcaps.ops.native.build import available, library
from torchcaps.ops.native.dynamic import MOST_ITERATIONS, MOST_THREADS, contiguous, lay_out
from torchcaps.ops.routing.distance import DetachVotes, Scale
from torchcaps.ops.squash import Squash
from torchcaps.types import Keep, Routed, VoteMap

__all__ = ["distance_routing"]

NAMES = ("pose", "weight", "vote_bias", "coordinates", "length", "bias", "scale")


def distance_routing(
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
    """Route the votes of a vote map to parents [*b, j, d], with the values and gradients of
    `ops.distance_routing` of the materialised votes."""
    votes = vote_like(vote_map)
    length, log_odds = checked(vote_map, votes, iterations, scale, bias, p, squash, detach, keep)
    if not _takes(vote_map, votes, bias, iterations):
        return fused.distance_routing(
            vote_map,
            iterations=iterations,
            scale=scale,
            bias=bias,
            p=p,
            squash=squash,
            detach=detach,
            keep=keep,
        )
    *lead, n_in, n_out, size = votes.shape
    pose, given = vote_map.children.pose, scale if isinstance(scale, Tensor) else None
    _, _, means, poses, couplings = _forward(
        pose.reshape(-1, *pose.shape[-2:]).float(),
        vote_map.weight.float(),
        of_all_samples(vote_map.bias, n_out, size),
        of_all_samples(vote_map.coordinates, n_in, size),
        length.float().expand(*lead, n_in).reshape(-1, n_in),
        of_all_samples(bias, n_out, size),
        None if given is None else given.float(),
        vote_map.sharing,
        vote_map.pose,
        iterations,
        log_odds,
        scale == "sample" if given is None else False,
        # What the rate f is owed; nobody asks in a prediction.
        torch.is_grad_enabled() and (given is None or given.requires_grad),
        squash,
        detach,
        keep,
    )
    if means.ndim > 1:
        means = means.reshape(iterations - 1, *lead).movedim(0, -1)
    return routed(votes, poses, couplings, keep)._replace(scale=means if iterations > 1 else None)


def _takes(vote_map: VoteMap, votes: Tensor, bias: Tensor | None, iterations: int) -> bool:
    return (
        votes.device.type == "cpu"
        and votes.dtype in (torch.float32, torch.float16, torch.bfloat16)
        and vote_map.window is None
        and iterations <= MOST_ITERATIONS
        and (bias is None or math.prod(bias.shape[:-2]) == 1)
        and available()
    )


class _Job(ctypes.Structure):
    """What a call is given: the fields of the source in their order."""

    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in (
                *("batch", "children", "parents", "rows", "inner", "columns", "types"),
                *("iterations", "threads", "squash", "detach", "by_sample"),
                *("n_poses", "n_couplings", "workspace_size"),
            )
        ),
        ("log_odds", ctypes.c_double),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *NAMES,
                *("sums", "slopes", "means", "poses", "couplings"),
                *("of_means", "of_poses", "of_couplings"),
                *(f"of_{name}" for name in NAMES),
                "workspace",
            )
        ),
    )


def _run(numbers: dict[str, int], tensors: dict[str, Tensor | None], log_odds: float) -> None:
    """Fill the tensors that are there to be filled; all are float32 and contiguous."""
    found = library()
    assert found is not None
    present = {name: x for name, x in tensors.items() if x is not None and x.numel()}
    assert all(x.is_contiguous() and x.dtype == torch.float32 for x in present.values())
    pointers = {name: x.data_ptr() for name, x in present.items()}
    job = _Job(**numbers, **pointers, log_odds=log_odds)
    backward = ctypes.c_int64("of_pose" in tensors)
    found.torchcaps_distance_plan(ctypes.byref(job), backward)
    workspace = torch.empty(job.workspace_size, dtype=torch.float32)
    job.workspace = workspace.data_ptr()
    found.torchcaps_distance(ctypes.byref(job), backward)


def _numbers(
    pose: Tensor,
    weight: Tensor,
    kind: str,
    iterations: int,
    by_sample: bool,
    squash: str,
    detach: str,
) -> dict[str, int]:
    batch, children, d_in = pose.shape
    types, parents, columns, inner = weight.shape
    return {
        "batch": batch,
        "children": children,
        "parents": parents,
        "rows": d_in // inner if kind == "matrix" else 1,
        "inner": inner,
        "columns": columns,
        "types": types,
        "iterations": iterations,
        "threads": min(torch.get_num_threads(), children, MOST_THREADS),
        "squash": get_args(Squash).index(squash),
        "detach": get_args(DetachVotes).index(detach),
        "by_sample": by_sample,
    }


def _forward_kernel(
    pose: Tensor,
    weight: Tensor,
    vote_bias: Tensor | None,
    coordinates: Tensor | None,
    length: Tensor,
    bias: Tensor | None,
    scale: Tensor | None,
    sharing: str,
    kind: str,
    iterations: int,
    log_odds: float,
    by_sample: bool,
    with_slopes: bool,
    squash: str,
    detach: str,
    keep: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """s of every iteration and S of those after the first [t, b, j, d], d_o [t, b] or [t], v and c
    of the iterations kept (of v always the last)."""
    outputs = _outputs(pose, weight, kind, iterations, by_sample, with_slopes, keep)
    sums, slopes, means, poses, couplings = outputs
    if not len(pose):
        # As of no distances, or as given.
        means.copy_(means.new_full(means.shape, math.nan) if scale is None else scale)
        return outputs
    laid = lay_out(weight, sharing, kind)
    if len(couplings) == iterations:
        couplings[0] = 1 / laid.shape[1]
    inputs = (pose, laid, vote_bias, coordinates, length, bias, scale)
    tensors = dict(zip(NAMES, map(contiguous, inputs), strict=True))
    tensors |= {"sums": sums, "slopes": slopes, "means": means, "poses": poses}
    tensors["couplings"] = couplings
    numbers = _numbers(pose, laid, kind, iterations, by_sample, squash, detach)
    counts = {"n_poses": len(poses), "n_couplings": len(couplings)}
    _run(numbers | counts, tensors, log_odds)
    return outputs


def _outputs(
    pose: Tensor,
    weight: Tensor,
    kind: str,
    iterations: int,
    by_sample: bool,
    with_slopes: bool,
    keep: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch, n_in, d_in = pose.shape
    n_out, size = weight.shape[-3], d_in if kind == "matrix" else weight.shape[-2]
    steps = {"none": 0, "last": 1, "steps": iterations}[keep]
    return (
        pose.new_empty(iterations, batch, n_out, size),
        pose.new_empty(iterations - 1 if with_slopes else 0, batch, n_out, size),
        pose.new_empty(iterations - 1, *((batch,) if by_sample else ())),
        pose.new_empty(max(1, steps), batch, n_out, size),
        pose.new_empty(steps, batch, n_in, n_out),
    )


def _backward_kernel(
    of_means: Tensor | None,
    of_poses: Tensor | None,
    of_couplings: Tensor | None,
    sums: Tensor,
    slopes: Tensor,
    means: Tensor,
    pose: Tensor,
    weight: Tensor,
    vote_bias: Tensor | None,
    coordinates: Tensor | None,
    length: Tensor,
    bias: Tensor | None,
    scale: Tensor | None,
    sharing: str,
    kind: str,
    log_odds: float,
    by_sample: bool,
    squash: str,
    detach: str,
    needs: list[bool],
) -> list[Tensor]:
    """Gradients of the seven tensors, empty where there is no need."""
    laid = lay_out(weight, sharing, kind)
    inputs = (pose, laid, vote_bias, coordinates, length, bias, scale)
    gradients = [
        x.new_zeros(x.shape) if x is not None and need else None
        for x, need in zip(inputs, needs, strict=True)
    ]
    if len(pose):
        tensors = dict(zip(NAMES, map(contiguous, inputs), strict=True))
        tensors |= {f"of_{name}": x for name, x in zip(NAMES, gradients, strict=True)}
        tensors |= {"sums": sums.contiguous(), "slopes": slopes.contiguous()}
        tensors["means"] = means.contiguous()
        recorded = {"of_means": of_means, "of_poses": of_poses, "of_couplings": of_couplings}
        tensors |= {name: contiguous(x) for name, x in recorded.items()}
        numbers = _numbers(pose, laid, kind, len(sums), by_sample, squash, detach)
        counts = {
            "n_poses": 0 if of_poses is None else len(of_poses),
            "n_couplings": 0 if of_couplings is None else len(of_couplings),
        }
        _run(numbers | counts, tensors, log_odds)
    elif of_means is not None and gradients[6] is not None:
        gradients[6].copy_(of_means)
    if gradients[1] is not None:
        turned = gradients[1].transpose(-1, -2) if kind == "matrix" else gradients[1]
        gradients[1] = turned.contiguous().view(weight.shape)
    return listed(gradients, pose)


_forward = torch.library.custom_op(
    "torchcaps::native_distance_routing", _forward_kernel, mutates_args=()
)
_backward = torch.library.custom_op(
    "torchcaps::native_distance_routing_backward", _backward_kernel, mutates_args=()
)


@_forward.register_fake
def _forward_shapes(pose: Tensor, weight: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    *_, kind, iterations, _, by_sample, with_slopes, _, _, keep = arguments
    return _outputs(pose, weight, kind, iterations, by_sample, with_slopes, keep)


@_backward.register_fake
def _backward_shapes(*arguments: Any) -> list[Tensor]:
    return shapes_listed(arguments[6:13], arguments[-1], arguments[3])


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output[:3], *inputs[:7])
    ctx.options = inputs[7:]


def _differentiate(ctx: Any, *of_outputs: Tensor | None) -> tuple[Any, ...]:
    sharing, kind, _, log_odds, by_sample, _, squash, detach, _ = ctx.options
    needs = list(ctx.needs_input_grad[:7])
    gradients = _backward(
        *of_outputs[2:],
        *ctx.saved_tensors,
        sharing,
        kind,
        log_odds,
        by_sample,
        squash,
        detach,
        needs,
    )
    return wanted(ctx, gradients, needs)


_forward.register_autograd(_differentiate, setup_context=_keep_for_backward)
once(_backward, "native distance routing", "distance_routing")
