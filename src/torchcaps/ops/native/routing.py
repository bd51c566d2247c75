"""What native kernels share that know every parent; routing.hpp in Python."""

import ctypes
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from torchcaps.ops.fused.tiles import MadeOf
from torchcaps.ops.native.build import call
from torchcaps.ops.native.layout import MOST_THREADS, contiguous, is_plain, lay_out

# Fields that every job begins with, and places of what votes are made of.
SIZES = (
    *("batch", "children", "parents", "rows", "inner", "columns", "types"),
    *("iterations", "threads", "n_poses", "n_couplings", "workspace_size"),
)
MADE_OF = ("pose", "weight", "vote_bias", "coordinates")


def given_of(
    votes: MadeOf, iterations: int, **others: Tensor | None
) -> tuple[dict[str, float], dict[str, Tensor | None]]:
    """Gather sizes and tensors of a call."""
    laid = lay_out(votes.weight, votes.sharing, votes.kind)
    (batch, children, d_in), (types, parents, columns, inner) = votes.pose.shape, laid.shape
    sizes: dict[str, float] = {
        "batch": batch,
        "children": children,
        "parents": parents,
        "rows": d_in // inner if votes.kind == "matrix" else 1,
        "inner": inner,
        "columns": columns,
        "types": types,
        "iterations": iterations,
        "threads": min(torch.get_num_threads(), children, MOST_THREADS),
    }
    made_of = zip(MADE_OF, (votes.pose, laid, votes.bias, votes.coordinates), strict=True)
    return sizes, {name: contiguous(x) for name, x in (*made_of, *others.items())}


def run(
    kernel: str,
    kind: type[ctypes.Structure],
    numbers: Mapping[str, float],
    tensors: Mapping[str, Tensor | None],
) -> None:
    """Fill the tensors that are there to be filled; all are float32 and contiguous."""
    present = {name: x for name, x in tensors.items() if x is not None and x.numel()}
    assert all(is_plain(x) for x in present.values())
    backward = "of_pose" in tensors
    # How many iterations are recorded, or have gradients.
    counts = {
        f"n_{name}": len(present.get(f"of_{name}" if backward else name, ()))
        for name in ("poses", "couplings")
    }
    pointers = {name: x.data_ptr() for name, x in present.items()}
    job = kind(**numbers, **counts, **pointers)
    call(kernel, job, job, ctypes.c_int64(backward))


def gradients_of(
    given: Mapping[str, Tensor | None], needs: Sequence[bool]
) -> dict[str, Tensor | None]:
    """Make places for those gradients that somebody needs. Others than of pose and weight are added
    to."""
    return {
        f"of_{name}": None
        if x is None or not need
        else x.new_empty(x.shape)
        if name in ("pose", "weight")
        else x.new_zeros(x.shape)
        for (name, x), need in zip(given.items(), needs, strict=True)
    }
