"""What native kernels share whose lanes are samples seen through windows; windows.hpp in Python."""

import ctypes
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from torchcaps.ops.fused.tiles import vote_map_of
from torchcaps.ops.native.dynamic import MOST_THREADS, contiguous, lay_out

__all__ = ["PLACES", "MadeOf", "Seen", "filled", "gradients_of", "laid_back"]

# As in the source: of a block of lanes, on any machine.
PLACES = 16
# Pose, weight, coordinates, sharing, kind, window.
MadeOf = tuple[Tensor, Tensor, Tensor | None, str, str, Sequence[int]]


class Seen(ctypes.Structure):
    """What every call is given: the fields of the source in their order."""

    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in (
                *("lanes", "windows", "children", "slots", "parents"),
                *("rows", "inner", "columns", "types", "threads", "workspace_size"),
            )
        ),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("pose", "weight", "coordinates", "child_id"),
                *("of_pose", "of_weight", "of_coordinates", "workspace"),
            )
        ),
    )


def filled(
    made_of: MadeOf, of_made: Mapping[str, Tensor | None], others: Mapping[str, Tensor | None]
) -> tuple[Seen, dict[str, int | None], list[Tensor]]:
    """What votes are made of as a call is given it, where the other tensors lie, and all that must
    live until the call is over. All are float32 and contiguous."""
    pose, weight, coordinates, sharing, kind, window = made_of
    looks = vote_map_of(pose, weight, None, None, sharing, kind, window).window
    child_id = None if looks is None else looks.child_id()
    windows, slots = (1, pose.shape[1]) if child_id is None else child_id.shape
    laid, lanes = lay_out(weight, sharing, kind), len(pose) * windows
    types, parents, columns, inner = laid.shape
    floats = {"pose": pose.contiguous(), "weight": laid, "coordinates": contiguous(coordinates)}
    floats |= of_made
    present = [x for x in (*floats.values(), *others.values()) if x is not None]
    assert all(x.is_contiguous() and x.dtype == torch.float32 for x in present)
    given = floats | {"child_id": contiguous(child_id)}
    seen = Seen(
        lanes=lanes,
        windows=windows,
        children=pose.shape[1],
        slots=slots,
        parents=parents,
        rows=pose.shape[2] // inner if kind == "matrix" else 1,
        inner=inner,
        columns=columns,
        types=types,
        threads=min(torch.get_num_threads(), math.ceil(lanes / PLACES), MOST_THREADS),
        **_places(given),
    )
    alive = [x for x in (*given.values(), *others.values()) if x is not None]
    return seen, _places(others), alive


def _places(tensors: Mapping[str, Tensor | None]) -> dict[str, int | None]:
    return {name: None if x is None else x.data_ptr() for name, x in tensors.items()}


def gradients_of(
    pose: Tensor,
    weight: Tensor,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    needs: Sequence[bool],
) -> dict[str, Tensor | None]:
    """Zeros to be added to."""
    tensors = (pose, lay_out(weight, sharing, kind), coordinates)
    names = ("of_pose", "of_weight", "of_coordinates")
    return {
        name: torch.zeros(x.shape, dtype=torch.float32) if x is not None and need else None
        for name, x, need in zip(names, tensors, needs, strict=True)
    }


def laid_back(
    of_made: dict[str, Tensor | None], weight: Tensor, kind: str
) -> tuple[Tensor | None, ...]:
    of_pose, of_weight, of_coordinates = of_made.values()
    if of_weight is not None:
        turned = of_weight.transpose(-1, -2) if kind == "matrix" else of_weight
        of_weight = turned.contiguous().view(weight.shape)
    return of_pose, of_weight, of_coordinates
