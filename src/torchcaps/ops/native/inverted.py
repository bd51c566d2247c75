"""Inverted routing from a vote map by native kernels: votes live in registers.

The algorithm, its papers, its options and its ambiguities are those of `ops.inverted_routing`, the
equations those of `ops.fused.inverted_routing`. An iteration from present parents is one kernel,
forwards and backwards; the first one is the convolution or the product that the fused form has.

Departures: no activations (ablation C), as in the fused form. Numbers are float32, so float64 goes
the fused way, as do vote biases, other devices, and every call where there is no native library.
Ambiguities: none.
"""

import ctypes
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from torchcaps.ops.fused import inverted as fused
from torchcaps.ops.fused.tiles import MadeOf, vote_like, vote_map_of
from torchcaps.ops.gradients import listed, once, shapes_listed, wanted
from torchcaps.ops.native.build import library
from torchcaps.ops.native.dynamic import contiguous
from torchcaps.ops.native.reach import reaches
from torchcaps.ops.native.windows import Seen, filled, gradients_of, laid_back
from torchcaps.types import Routed, Step, VoteMap

__all__ = ["inverted_routing", "inverted_step"]


def inverted_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents, with the options, values and gradients of
    `ops.fused.inverted_routing`."""
    return fused.route(_sums_of(vote_map), vote_map, **options)


def inverted_step(vote_map: VoteMap, parents: Tensor | None, **options: Any) -> Step:
    """One iteration from the present parents, as in `ops.fused.inverted_step`."""
    return fused.step(_sums_of(vote_map), vote_map, parents, **options)


def _sums_of(vote_map: VoteMap) -> fused.Sums:
    return _by_kernel if takes(vote_map, {}) else fused._sums


def takes(vote_map: VoteMap, options: Mapping[str, Any]) -> bool:
    """Whether the kernel sums these votes, whatever the options."""
    return vote_map.bias is None and reaches(vote_map)


def _by_kernel(
    parents: Tensor | None,
    pose: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
    scale: float,
    kept: bool,
) -> tuple[Tensor, Tensor]:
    if parents is None:
        first = (pose, weight, bias, coordinates, sharing, kind, window)
        sums, couplings = fused._sums(parents, *first, dtype, scale, kept)
        return sums, couplings
    # A batch may have several axes; without a window all of them are lanes.
    flat = pose.reshape(-1, *pose.shape[-2:]).float()
    made_of = (flat, weight.float(), coordinates, sharing, kind, window)
    sums, couplings = _sums(parents, *made_of, scale, kept)
    return sums, couplings


class _Job(ctypes.Structure):
    """What a call is given: the fields of the source in their order."""

    _fields_ = (
        ("seen_by", Seen),
        ("scale", ctypes.c_double),
        *(
            (name, ctypes.c_void_p)
            for name in ("now", "sums", "couplings", "of_sums", "of_couplings", "of_now")
        ),
    )


def _run(
    made_of: MadeOf,
    scale: float,
    of_made: Mapping[str, Tensor | None] = MappingProxyType({}),
    **tensors: Tensor | None,
) -> None:
    """Fill the tensors that are there to be filled."""
    found = library()
    assert found is not None
    seen, places, _alive = filled(made_of, of_made, tensors)
    job, backward = _Job(seen_by=seen, scale=scale, **places), ctypes.c_int64("of_now" in tensors)
    found.torchcaps_inverted_plan(ctypes.byref(job), backward)
    workspace = torch.empty(job.seen_by.workspace_size, dtype=torch.float32)
    job.seen_by.workspace = workspace.data_ptr()
    found.torchcaps_inverted(ctypes.byref(job), backward)


def _sums_kernel(
    parents: Tensor,
    pose: Tensor,
    weight: Tensor,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    scale: float,
    kept: bool,
) -> tuple[Tensor, Tensor]:
    """Σ_i r_ij v_ij [b, p, j, d] of such parents and, if kept, r [b, p, i, j]."""
    sums, couplings = _sums_shapes(
        parents, pose, weight, coordinates, sharing, kind, window, scale, kept
    )
    if sums.numel():
        votes = MadeOf(pose, weight, None, coordinates, sharing, kind, window, torch.float32)
        _run(
            votes,
            scale,
            now=parents.contiguous(),
            sums=sums,
            couplings=couplings if kept else None,
        )
    return sums, couplings


def _backward_kernel(
    of_sums: Tensor | None,
    of_couplings: Tensor | None,
    parents: Tensor,
    pose: Tensor,
    weight: Tensor,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    scale: float,
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the four tensors, empty where there is no need."""
    of_parents = parents.new_empty(parents.shape)
    votes = MadeOf(pose, weight, None, coordinates, sharing, kind, window, torch.float32)
    of_made = gradients_of(votes, (*needs[1:3], False, needs[3]))
    if parents.numel():
        _run(
            votes,
            scale,
            of_made,
            now=parents.contiguous(),
            of_sums=parents.new_zeros(parents.shape) if of_sums is None else of_sums.contiguous(),
            of_couplings=contiguous(of_couplings),
            of_now=of_parents,
        )
    of_pose, of_weight, _, of_coordinates = laid_back(of_made, votes)
    return listed([of_parents, of_pose, of_weight, of_coordinates], pose)


_sums = torch.library.custom_op("torchcaps::native_inverted_sums", _sums_kernel, mutates_args=())
_backward = torch.library.custom_op(
    "torchcaps::native_inverted_sums_backward", _backward_kernel, mutates_args=()
)


@_sums.register_fake
def _sums_shapes(
    parents: Tensor, pose: Tensor, weight: Tensor, *arguments: Any
) -> tuple[Tensor, Tensor]:
    _, sharing, kind, window, _, kept = arguments
    votes = vote_like(vote_map_of(pose, weight, None, None, sharing, kind, window))
    couplings = (*parents.shape[:2], *votes.shape[-3:-1]) if kept else (0,)
    return parents.new_empty(parents.shape), parents.new_empty(couplings)


@_backward.register_fake
def _backward_shapes(
    of_sums: Tensor | None, of_couplings: Tensor | None, *arguments: Any
) -> list[Tensor]:
    needs = arguments[-1]
    return shapes_listed(arguments[:4], (True, *needs[1:]), arguments[1])


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:4])
    ctx.options = inputs[4:]


def _differentiate(
    ctx: Any, of_sums: Tensor | None, of_couplings: Tensor | None
) -> tuple[Tensor | None, ...]:
    *options, _ = ctx.options
    needs = list(ctx.needs_input_grad[:4])
    gradients = _backward(of_sums, of_couplings, *ctx.saved_tensors, *options, needs)
    return wanted(ctx, gradients, needs)


_sums.register_autograd(_differentiate, setup_context=_keep_for_backward)
once(_backward, "native inverted or self-attention routing", fused.ITS_PLAIN)
