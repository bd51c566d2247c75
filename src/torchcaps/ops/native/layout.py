"""How votes lie for native kernels, the limits of these, and how a call is made of tensors."""

import ctypes
from collections.abc import Collection, Mapping, Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from torchcaps.ops.fused.tiles import MadeOf
from torchcaps.ops.native.build import call
from torchcaps.ops.squashing import Squash

# As in the source.
MOST_THREADS, MOST_ITERATIONS = 256, 32
PARTS = ("pose", "weight", "vote_bias", "coordinates")


def fields(numbers: str = "", places: str = "") -> tuple[tuple[str, Any], ...]:
    """Name fields of a call, blanks between: whole numbers, then where tensors lie."""
    kinds = (numbers, ctypes.c_int64), (places, ctypes.c_void_p)
    return tuple((name, kind) for names, kind in kinds for name in names.split())


class VotesJob(ctypes.Structure):
    """What every call on votes is given: the fields of the source in their order."""

    _fields_ = fields(
        "lanes windows children slots parents rows inner columns types threads workspace_size",
        "pose weight vote_bias coordinates child_id of_pose of_weight of_vote_bias of_coordinates "
        "workspace",
    )


class LoopJob(VotesJob):
    """What every call is given that routes in a loop: the fields of the source in their order."""

    _fields_ = fields(
        "iterations n_poses n_couplings squash detach",
        "bias sums poses couplings of_poses of_couplings of_bias",
    )


def counts_of(
    iterations: int, poses: Tensor | None, couplings: Tensor | None, squash: Squash
) -> dict[str, int]:
    """Give the numbers of a loop that records these, or is given their gradients."""
    return {
        "iterations": iterations,
        "n_poses": 0 if poses is None else len(poses),
        "n_couplings": 0 if couplings is None else len(couplings),
        "squash": get_args(Squash).index(squash),
    }


def parts_of(votes: MadeOf) -> dict[str, Tensor | None]:
    """Give what votes are made of, with weights as [type, parent, column, inner]."""
    weight = votes.weight.unsqueeze(0) if votes.sharing == "all" else votes.weight
    weight = weight.transpose(-1, -2) if votes.kind == "matrix" else weight
    each = (votes.pose, weight, votes.bias, votes.coordinates)
    return {name: contiguous(x) for name, x in zip(PARTS, each, strict=True)}


def sizes_of(votes: MadeOf, shares: int) -> dict[str, int]:
    """Give the sizes of a call, whose work is shared out in at most so many shares."""
    samples, windows, slots, parents, size = votes.counts()
    d_in, weight = votes.pose.shape[-1], votes.weight.shape
    is_matrix = votes.kind == "matrix"
    return {
        "lanes": samples * windows,
        "windows": windows,
        "children": votes.pose.shape[-2],
        "slots": slots,
        "parents": parents,
        "rows": d_in // weight[-2] if is_matrix else 1,
        "inner": weight[-2] if is_matrix else d_in,
        "columns": weight[-1] if is_matrix else size,
        "types": 1 if votes.sharing == "all" else weight[0],
        "threads": min(torch.get_num_threads(), shares, MOST_THREADS),
    }


def gradients_of(
    given: Mapping[str, Tensor | None], needs: Sequence[bool], *, written: Collection[str] = ()
) -> dict[str, Tensor | None]:
    """Make places for those gradients that somebody needs: zeros that are added to, but for what is
    written."""
    return {
        f"of_{name}": None
        if x is None or not need
        else x.new_empty(x.shape)
        if name in written
        else x.new_zeros(x.shape)
        for (name, x), need in zip(given.items(), needs, strict=True)
    }


def laid_back(gradients: Mapping[str, Tensor | None], votes: MadeOf) -> list[Tensor | None]:
    """Lay back that of weights as they lie; the types of one that all share are still an axis."""
    of_weight = gradients["of_weight"]
    if of_weight is not None and votes.kind == "matrix":
        of_weight = of_weight.transpose(-1, -2).contiguous()
    return list((dict(gradients) | {"of_weight": of_weight}).values())


def run(
    kernel: str, job: VotesJob, tensors: Mapping[str, Tensor | None], *arguments: ctypes.c_int64
) -> None:
    """Fill the tensors that are there to be filled; all are float32 and contiguous."""
    for name, x in tensors.items():
        if x is not None and x.numel():
            assert x.is_contiguous()
            assert (x.dtype, x.device.type) == (torch.float32, "cpu")
            setattr(job, name, x.data_ptr())
    call(kernel, job, *arguments)


def contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()
