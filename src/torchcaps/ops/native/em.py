"""EM routing from a vote map by native kernels: votes live in registers.

The algorithm, its papers and its options are those of `ops.em_routing`. The two steps that meet
votes are those of `ops.fused.em_routing`, with the couplings inside: no tensor of them is made but
ln r, and its gradient. With t_ij = ln r_ij + ln a_i and c_j = Σ_i w_ij ∂w_ij,

    ∂t_ij = w_ij (∂w_ij − c_j + m_j ∂m_j)                     back through the weights and m_j
    ∂x_ij = ∂ln r_ij + r_ij (∂ln s_i − Σ_k ∂ln r_ik)          with ln r = x − ln s, s = Σ_j exp x

where c_j = ⟨ν_j, σ_j²⟩ + ⟨α_j, δ_j⟩, with the δ_j of rounding.

Departures: half precision is computed in float32, as in the fused form. Numbers are float32, so
float64 goes the fused way, as do other devices, and every call where there is no native library.
Ambiguities: none.

Kept are the children, the weights, the parents of every iteration and one tensor of couplings:
those of the last, as in the fused form.
"""

import ctypes
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from torchcaps.ops import fused
from torchcaps.ops.fused.em import MadeOf as EMMadeOf
from torchcaps.ops.fused.em import route
from torchcaps.ops.fused.tiles import vote_like
from torchcaps.ops.gradients import listed, once, shapes_listed, wanted
from torchcaps.ops.native.build import available, library
from torchcaps.ops.native.dynamic import contiguous
from torchcaps.ops.native.windows import PLACES, MadeOf, Seen, filled, gradients_of, laid_back
from torchcaps.types import Routed, VoteMap

__all__ = ["em_routing"]

_Fitted = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
PASSES = ("fit", "fit_backward", "assign", "assign_backward")


def em_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents, with the options, values and gradients of
    `ops.fused.em_routing`."""
    if not _takes(vote_like(vote_map)):
        return fused.em_routing(vote_map, **options)
    return route(Native, vote_map, **options)


def _takes(votes: Tensor) -> bool:
    return (
        votes.device.type == "cpu"
        and votes.dtype in (torch.float32, torch.float16, torch.bfloat16)
        and available()
    )


class Native:
    """The steps by kernels. Couplings are [block of lanes, i, j, lane], a lane is a sample seen
    through a window."""

    def __init__(self, made_of: EMMadeOf):
        pose = made_of.pose
        self.made_of = (
            pose.reshape(math.prod(pose.shape[:-2]), *pose.shape[-2:]).float(),
            made_of.matrices.float(),
            *made_of[2:6],
        )

    def fit(self, log_r: Tensor | None, log_a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.lead = log_a.shape[:2]
        mass, mean, variance, *_ = _fit(log_r, log_a, *self.made_of)
        return mass, mean, variance

    def assign(
        self, likely: Tensor, mean: Tensor, variance: Tensor, wants_seen: bool
    ) -> tuple[Tensor, Tensor | None]:
        log_r, seen = _assign(likely, mean, variance, *self.made_of)
        return log_r, seen

    def laid_out(self, log_r: Tensor) -> Tensor:
        n_batch, n_windows = self.lead
        lanes = log_r.permute(0, 3, 1, 2).flatten(0, 1)[: n_batch * n_windows]
        return lanes.view(n_batch, n_windows, *lanes.shape[1:])


class _Job(ctypes.Structure):
    """What a call is given: the fields of the source in their order."""

    _fields_ = (
        ("seen_by", Seen),
        ("pass_", ctypes.c_int64),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("log_r", "log_a", "mass", "mean", "variance", "top", "total", "rest"),
                *("likely", "seen"),
                *("of_mean", "of_variance", "shift", "of_log_r", "of_seen"),
                *("to_log_r", "to_log_a", "to_likely", "to_mean", "to_variance"),
            )
        ),
    )


def _run(
    name: str,
    made_of: MadeOf,
    of_made: Mapping[str, Tensor | None] = MappingProxyType({}),
    **tensors: Tensor | None,
) -> None:
    """Fill the tensors that are there to be filled."""
    found = library()
    assert found is not None
    seen, places, _alive = filled(made_of, of_made, tensors)
    job = _Job(seen_by=seen, pass_=PASSES.index(name), **places)
    found.torchcaps_em_plan(ctypes.byref(job))
    workspace = torch.empty(job.seen_by.workspace_size, dtype=torch.float32)
    job.seen_by.workspace = workspace.data_ptr()
    found.torchcaps_em(ctypes.byref(job))


def _fit_kernel(
    log_r: Tensor | None,
    log_a: Tensor,
    pose: Tensor,
    weight: Tensor,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
) -> _Fitted:
    """Mass, mean and variance; top, total and rest are for the backward pass."""
    mass, mean, variance, top, total, rest = _fit_shapes(
        log_r, log_a, pose, weight, coordinates, sharing, kind, window
    )
    if mass.numel():
        _run(
            "fit",
            (pose, weight, coordinates, sharing, kind, window),
            log_r=contiguous(log_r),
            log_a=log_a.contiguous(),
            mass=mass,
            mean=mean,
            variance=variance,
            top=top,
            total=total,
            rest=rest,
        )
    return mass, mean, variance, top, total, rest


def _fit_backward_kernel(
    of_mass: Tensor | None,
    of_mean: Tensor | None,
    of_variance: Tensor | None,
    mass: Tensor,
    mean: Tensor,
    variance: Tensor,
    top: Tensor,
    total: Tensor,
    rest: Tensor,
    log_r: Tensor | None,
    log_a: Tensor,
    pose: Tensor,
    weight: Tensor,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the five tensors, empty where there is no need."""
    of_mean, of_variance = (
        mean.new_zeros(mean.shape) if x is None else x.contiguous() for x in (of_mean, of_variance)
    )
    of_mean = of_mean - 2 * of_variance * rest
    shift = -(of_variance * variance + of_mean * rest).sum(-1)
    shift = shift if of_mass is None else shift + of_mass * mass
    of_log_r = None if log_r is None or not needs[0] else log_r.new_empty(log_r.shape)
    # Not like it: what a kernel fills is contiguous.
    of_log_a = log_a.new_empty(log_a.shape)
    of_made = gradients_of(pose, weight, coordinates, sharing, kind, needs[2:])
    if mass.numel():
        _run(
            "fit_backward",
            (pose, weight, coordinates, sharing, kind, window),
            of_made,
            log_r=contiguous(log_r),
            log_a=log_a.contiguous(),
            mean=mean.contiguous(),
            top=top.contiguous(),
            total=total.contiguous(),
            of_mean=of_mean,
            of_variance=of_variance,
            shift=shift.contiguous(),
            to_log_r=of_log_r,
            to_log_a=of_log_a,
        )
    return listed([of_log_r, of_log_a, *laid_back(of_made, weight, kind)], pose)


def _assign_kernel(
    likely: Tensor,
    mean: Tensor,
    variance: Tensor,
    pose: Tensor,
    weight: Tensor,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """ln r and ln s."""
    log_r, seen = _assign_shapes(
        likely, mean, variance, pose, weight, coordinates, sharing, kind, window
    )
    if likely.numel():
        _run(
            "assign",
            (pose, weight, coordinates, sharing, kind, window),
            log_r=log_r,
            seen=seen,
            likely=likely.contiguous(),
            mean=mean.contiguous(),
            variance=variance.contiguous(),
        )
    return log_r, seen


def _assign_backward_kernel(
    of_log_r: Tensor | None,
    of_seen: Tensor | None,
    log_r: Tensor,
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
    """Gradients of the six tensors, empty where there is no need."""
    of_likely, of_mean, of_variance = (
        mean.new_empty(shape) for shape in (mean.shape[:-1], mean.shape, mean.shape)
    )
    of_made = gradients_of(pose, weight, coordinates, sharing, kind, needs[3:])
    if mean.numel():
        _run(
            "assign_backward",
            (pose, weight, coordinates, sharing, kind, window),
            of_made,
            log_r=log_r.contiguous(),
            mean=mean.contiguous(),
            variance=variance.contiguous(),
            of_log_r=log_r.new_zeros(log_r.shape) if of_log_r is None else of_log_r.contiguous(),
            of_seen=contiguous(of_seen),
            to_likely=of_likely,
            to_mean=of_mean,
            to_variance=of_variance,
        )
    return listed([of_likely, of_mean, of_variance, *laid_back(of_made, weight, kind)], pose)


_fit = torch.library.custom_op("torchcaps::native_em_fit", _fit_kernel, mutates_args=())
_fit_backward = torch.library.custom_op(
    "torchcaps::native_em_fit_backward", _fit_backward_kernel, mutates_args=()
)
_assign = torch.library.custom_op("torchcaps::native_em_assign", _assign_kernel, mutates_args=())
_assign_backward = torch.library.custom_op(
    "torchcaps::native_em_assign_backward", _assign_backward_kernel, mutates_args=()
)


@_fit.register_fake
def _fit_shapes(
    log_r: Tensor | None, log_a: Tensor, pose: Tensor, weight: Tensor, *arguments: Any
) -> _Fitted:
    lead, parents, size = log_a.shape[:2], weight.shape[-3], _size(pose, weight, arguments[2])
    mass, mean = log_a.new_empty((*lead, parents)), log_a.new_empty((*lead, parents, size))
    # Where shares are all alike, one parent speaks for all.
    top = log_a.new_empty((*lead, 1)) if log_r is None else torch.empty_like(mass)
    return mass, mean, torch.empty_like(mean), top, torch.empty_like(top), torch.empty_like(mean)


@_assign.register_fake
def _assign_shapes(
    likely: Tensor, mean: Tensor, variance: Tensor, pose: Tensor, *arguments: Any
) -> tuple[Tensor, Tensor]:
    window = arguments[-1]
    slots = pose.shape[1] if not window else window[2] * window[3] * window[4]
    n_batch, n_windows, parents = likely.shape
    blocks = (n_batch * n_windows + PLACES - 1) // PLACES
    log_r = likely.new_empty((blocks, slots, parents, PLACES))
    return log_r, likely.new_empty((n_batch, n_windows, slots))


def _size(pose: Tensor, weight: Tensor, kind: str) -> int:
    """Of a vote."""
    return pose.shape[-1] if kind == "matrix" else weight.shape[-2]


@_fit_backward.register_fake
def _fit_backward_shapes(*arguments: Any) -> list[Tensor]:
    return shapes_listed(
        arguments[9:14], (arguments[-1][0], True, *arguments[-1][2:]), arguments[10]
    )


@_assign_backward.register_fake
def _assign_backward_shapes(*arguments: Any) -> list[Tensor]:
    _, _, _, mean, variance, *made_of = arguments[:8]
    tensors = (mean[..., 0], mean, variance, *made_of)
    return shapes_listed(tensors, (True, True, True, *arguments[-1][3:]), mean)


def _keep_for_fit(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, *inputs[:5])
    ctx.options = inputs[5:]


def _differentiate_fit(ctx: Any, *of_made: Tensor | None) -> tuple[Tensor | None, ...]:
    needs = list(ctx.needs_input_grad[:5])
    found = _fit_backward(*of_made[:3], *ctx.saved_tensors, *ctx.options, needs)
    return wanted(ctx, found, needs)


def _keep_for_assign(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[0], *inputs[1:6])
    ctx.options = inputs[6:]


def _differentiate_assign(
    ctx: Any, of_log_r: Tensor | None, of_seen: Tensor | None
) -> tuple[Tensor | None, ...]:
    needs = list(ctx.needs_input_grad[:6])
    found = _assign_backward(of_log_r, of_seen, *ctx.saved_tensors, *ctx.options, needs)
    return wanted(ctx, found, needs)


_fit.register_autograd(_differentiate_fit, setup_context=_keep_for_fit)
_assign.register_autograd(_differentiate_assign, setup_context=_keep_for_assign)
once(_fit_backward, "native EM routing", "em_routing")
once(_assign_backward, "native EM routing", "em_routing")
