"""Dynamic routing from a vote map by a native kernel: votes live in registers and a core's cache.

The algorithm, its papers and its options are those of `ops.dynamic_routing`; the equations of both
passes are those of `ops.fused.dynamic_routing`, and so is what is kept for the backward pass.

Departures: half precision is computed in float32, as in the fused form. Numbers are float32, so
float64 goes the fused way, as do windows, priors and biases that differ between samples, other
devices, and every call where there is no native library. Couplings that float32 holds with fewer
digits, below 1.2e-38, are zero: with squash="none" an odd bias that hangs on the sign of a sum of
nothing else is lost with them.
Ambiguities: none.
"""

import ctypes
import math
from collections.abc import Mapping
from typing import Any, get_args

import torch
from torch import Tensor

from torchcaps.ops import fused
from torchcaps.ops.fused.dynamic import of_all_samples, routed
from torchcaps.ops.fused.tiles import vote_like
from torchcaps.ops.gradients import listed, once, shapes_listed, wanted
from torchcaps.ops.native.build import library
from torchcaps.ops.native.reach import reaches
from torchcaps.ops.routing.dynamic import Detach, check_dynamic
from torchcaps.ops.squash import Squash
from torchcaps.types import Keep, Routed, VoteMap

__all__ = ["dynamic_routing"]

# As in the source.
MOST_THREADS, MOST_ITERATIONS = 256, 32
# Where gradients stop at couplings, those of the last iteration are all that a backward pass needs
# to know of the votes; they are kept for it up to this size. Lanes come in at most so many.
KEPT_BYTES, LANES = 16 << 20, 16


def dynamic_routing(
    vote_map: VoteMap,
    *,
    iterations: int = 3,
    bias: Tensor | None = None,
    prior: Tensor | None = None,
    odd_bias: bool = False,
    leaky: bool = False,
    squash: Squash = "hinton",
    detach: Detach = "none",
    keep: Keep = "none",
) -> Routed:
    """Route the votes of a vote map to parents [*b, j, d], with the values and gradients of
    `ops.dynamic_routing` of the materialised votes."""
    votes = vote_like(vote_map)
    check_dynamic(votes, iterations, bias, prior, squash, detach, keep)
    if not takes(vote_map, {"bias": bias, "prior": prior, "iterations": iterations}):
        return fused.dynamic_routing(
            vote_map,
            iterations=iterations,
            bias=bias,
            prior=prior,
            odd_bias=odd_bias,
            leaky=leaky,
            squash=squash,
            detach=detach,
            keep=keep,
        )
    n_in, n_out, size = votes.shape[-3:]
    pose, (vote_bias, coordinates) = vote_map.children.pose, (vote_map.bias, vote_map.coordinates)
    given = (pose, vote_map.weight, vote_bias, coordinates, bias, prior)
    is_trained = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in given)
    routes = iterations > 1 or prior is not None
    _, _, poses, couplings = _forward(
        pose.reshape(-1, *pose.shape[-2:]).float(),
        vote_map.weight.float(),
        of_all_samples(vote_bias, n_out, size),
        of_all_samples(coordinates, n_in, size),
        of_all_samples(bias, n_out, size),
        of_all_samples(prior, n_in, n_out),
        vote_map.sharing,
        vote_map.pose,
        iterations,
        odd_bias,
        leaky,
        squash,
        detach,
        keep,
        is_trained and routes and detach in ("votes", "coupling"),
    )
    return routed(votes, poses, couplings, keep)


def takes(vote_map: VoteMap, options: Mapping[str, Any]) -> bool:
    """Whether the kernel routes these votes with these options."""
    parameters = (options.get("bias"), options.get("prior"))
    return (
        vote_map.window is None
        and options.get("iterations", 1) <= MOST_ITERATIONS
        and all(x is None or math.prod(x.shape[:-2]) == 1 for x in parameters)
        and reaches(vote_map)
    )


class _Job(ctypes.Structure):
    """What a call is given: the fields of the source in their order."""

    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in (
                *("batch", "children", "parents", "rows", "inner", "columns", "types"),
                *("iterations", "threads", "squash", "odd_bias", "leaky", "detach"),
                *("n_poses", "n_couplings"),
            )
        ),
        ("share", ctypes.c_double),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("pose", "weight", "vote_bias", "coordinates", "bias", "prior"),
                *("sums", "poses", "couplings", "kept", "of_poses", "of_couplings"),
                *("of_pose", "of_weight", "of_vote_bias", "of_coordinates", "of_bias", "of_prior"),
                "workspace",
            )
        ),
    )


def _run(numbers: dict[str, int], tensors: dict[str, Tensor | None], share: float) -> None:
    """Fill the tensors that are there to be filled; all are float32 and contiguous."""
    found = library()
    assert found is not None
    present = [x for x in tensors.values() if x is not None]
    assert all(x.is_contiguous() and x.dtype == torch.float32 for x in present)
    pointers = {name: None if x is None else x.data_ptr() for name, x in tensors.items()}
    job = _Job(**numbers, **pointers, share=share)
    backward = ctypes.c_int64("of_pose" in tensors)
    size = found.torchcaps_workspace(ctypes.byref(job), backward)
    workspace = torch.empty(size, dtype=torch.float32)
    job.workspace = workspace.data_ptr()
    found.torchcaps_dynamic(ctypes.byref(job), backward)


def _numbers(
    pose: Tensor,
    weight: Tensor,
    kind: str,
    iterations: int,
    odd_bias: bool,
    leaky: bool,
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
        "odd_bias": odd_bias,
        "leaky": leaky,
        "detach": get_args(Detach).index(detach),
    }


def lay_out(weight: Tensor, sharing: str, kind: str) -> Tensor:
    """Weights as [type, parent, column, inner]."""
    weight = weight.unsqueeze(0) if sharing == "all" else weight
    return (weight.transpose(-1, -2) if kind == "matrix" else weight).contiguous()


def _forward_kernel(
    pose: Tensor,
    weight: Tensor,
    vote_bias: Tensor | None,
    coordinates: Tensor | None,
    bias: Tensor | None,
    prior: Tensor | None,
    sharing: str,
    kind: str,
    iterations: int,
    odd_bias: bool,
    leaky: bool,
    squash: str,
    detach: str,
    keep: str,
    stops: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """s of every iteration and what else the backward pass wants; v and c of the iterations kept
    (of v always the last), [t, b, …]."""
    sums, kept, poses, couplings = _outputs(pose, weight, kind, iterations, keep, stops)
    if not len(pose):
        return sums, kept, poses, couplings
    laid = lay_out(weight, sharing, kind)
    share = 1 / (laid.shape[1] + leaky)
    if len(couplings) == iterations and prior is None:
        couplings[0] = share
    numbers = _numbers(pose, laid, kind, iterations, odd_bias, leaky, squash, detach)
    tensors = {
        "pose": pose.contiguous(),
        "weight": laid,
        "vote_bias": contiguous(vote_bias),
        "coordinates": contiguous(coordinates),
        "bias": contiguous(bias),
        "prior": contiguous(prior),
        "sums": sums,
        "poses": poses,
        "couplings": couplings if len(couplings) else None,
        "kept": kept if len(kept) else None,
    }
    counts = {"n_poses": len(poses), "n_couplings": len(couplings)}
    _run(numbers | counts, tensors, share)
    return sums, kept, poses, couplings


def _outputs(
    pose: Tensor, weight: Tensor, kind: str, iterations: int, keep: str, stops: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, n_in, d_in = pose.shape
    n_out, size = weight.shape[-3], d_in if kind == "matrix" else weight.shape[-2]
    steps = {"none": 0, "last": 1, "steps": iterations}[keep]
    numbers = (batch + LANES - 1) // LANES * LANES * n_in * n_out
    return (
        pose.new_empty(iterations, batch, n_out, size),
        pose.new_empty(numbers if stops and 4 * numbers <= KEPT_BYTES else 0),
        pose.new_empty(max(1, steps), batch, n_out, size),
        pose.new_empty(steps, batch, n_in, n_out),
    )


def contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _backward_kernel(
    of_poses: Tensor | None,
    of_couplings: Tensor | None,
    sums: Tensor,
    kept: Tensor,
    pose: Tensor,
    weight: Tensor,
    vote_bias: Tensor | None,
    coordinates: Tensor | None,
    bias: Tensor | None,
    prior: Tensor | None,
    sharing: str,
    kind: str,
    odd_bias: bool,
    leaky: bool,
    squash: str,
    detach: str,
    needs: list[bool],
) -> list[Tensor]:
    """Gradients of the six tensors, empty where there is no need."""
    laid = lay_out(weight, sharing, kind)
    inputs = [pose, laid, vote_bias, coordinates, bias, prior]
    gradients = [
        None if x is None or not need else x.new_zeros(x.shape) if n > 1 else x.new_empty(x.shape)
        for n, (x, need) in enumerate(zip(inputs, needs, strict=True))
    ]
    if len(pose):
        names = ("pose", "weight", "vote_bias", "coordinates", "bias", "prior")
        tensors = dict(zip(names, map(contiguous, inputs), strict=True))
        tensors |= {f"of_{name}": x for name, x in zip(names, gradients, strict=True)}
        tensors |= {
            "sums": sums.contiguous(),
            "kept": kept if len(kept) else None,
            "of_poses": contiguous(of_poses),
            "of_couplings": contiguous(of_couplings),
        }
        numbers = _numbers(pose, laid, kind, len(sums), odd_bias, leaky, squash, detach)
        counts = {
            "n_poses": 0 if of_poses is None else len(of_poses),
            "n_couplings": 0 if of_couplings is None else len(of_couplings),
        }
        _run(numbers | counts, tensors, 1 / (laid.shape[1] + leaky))
    else:
        gradients = [None if x is None else x.zero_() for x in gradients]
    if gradients[1] is not None:
        turned = gradients[1].transpose(-1, -2) if kind == "matrix" else gradients[1]
        gradients[1] = turned.contiguous().view(weight.shape)
    return listed(gradients, pose)


_forward = torch.library.custom_op(
    "torchcaps::native_dynamic_routing", _forward_kernel, mutates_args=()
)
_backward = torch.library.custom_op(
    "torchcaps::native_dynamic_routing_backward", _backward_kernel, mutates_args=()
)


@_forward.register_fake
def _forward_shapes(pose: Tensor, weight: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    *_, kind, iterations, _, _, _, _, keep, stops = arguments
    return _outputs(pose, weight, kind, iterations, keep, stops)


@_backward.register_fake
def _backward_shapes(
    of_poses: Tensor | None,
    of_couplings: Tensor | None,
    sums: Tensor,
    kept: Tensor,
    *arguments: Any,
) -> list[Tensor]:
    return shapes_listed(arguments[:6], arguments[-1], sums)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output[:2], *inputs[:6])
    ctx.options = inputs[6:]


def _differentiate(ctx: Any, _: None, __: None, *of_kept: Tensor | None) -> tuple[Any, ...]:
    sharing, kind, _, odd_bias, leaky, squash, detach, _, _ = ctx.options
    needs = list(ctx.needs_input_grad[:6])
    gradients = _backward(
        *of_kept, *ctx.saved_tensors, sharing, kind, odd_bias, leaky, squash, detach, needs
    )
    return wanted(ctx, gradients, needs)


_forward.register_autograd(_differentiate, setup_context=_keep_for_backward)
once(_backward, "native dynamic routing", "dynamic_routing")
