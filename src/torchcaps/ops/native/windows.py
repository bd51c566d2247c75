"""What native kernels share whose lanes are samples seen through windows; windows.hpp in Python."""

import ctypes
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from torchcaps.ops.fused.tiles import MadeOf
from torchcaps.ops.native.layout import MOST_THREADS, contiguous, is_plain, lay_back, lay_out

# As in the source: of a block of lanes, on any machine.
PLACES = 16


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
    votes: MadeOf, of_made: Mapping[str, Tensor | None], others: Mapping[str, Tensor | None]
) -> tuple[Seen, dict[str, int | None], list[Tensor]]:
    """Give what votes are made of as a call is given it, where the other tensors lie, and all that
    must live until the call is over. All are float32 and contiguous."""
    pose, window = votes.pose, votes.vote_map.window
    child_id = None if window is None else window.child_id()
    windows, slots = (1, pose.shape[1]) if child_id is None else child_id.shape
    laid, lanes = lay_out(votes.weight, votes.sharing, votes.kind), len(pose) * windows
    types, parents, columns, inner = laid.shape
    coordinates = contiguous(votes.coordinates)
    floats = {"pose": pose.contiguous(), "weight": laid, "coordinates": coordinates, **of_made}
    present = [x for x in (*floats.values(), *others.values()) if x is not None]
    assert all(is_plain(x) for x in present)
    given = floats | {"child_id": contiguous(child_id)}
    seen = Seen(
        lanes=lanes,
        windows=windows,
        children=pose.shape[1],
        slots=slots,
        parents=parents,
        rows=pose.shape[2] // inner if votes.kind == "matrix" else 1,
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


def gradients_of(votes: MadeOf, needs: Sequence[bool]) -> dict[str, Tensor | None]:
    """Make zeros to be added to."""
    laid = lay_out(votes.weight, votes.sharing, votes.kind)
    tensors = {"of_pose": votes.pose, "of_weight": laid, "of_coordinates": votes.coordinates}
    return {
        name: torch.zeros(x.shape, dtype=torch.float32) if x is not None and need else None
        for (name, x), need in zip(tensors.items(), (*needs[:2], needs[3]), strict=True)
    }


def laid_back(of_made: Mapping[str, Tensor | None], votes: MadeOf) -> list[Tensor | None]:
    """Lay back those of pose, weight, bias and coordinates."""
    of_weight = lay_back(of_made["of_weight"], votes.kind)
    of_weight = None if of_weight is None else of_weight.view(votes.weight.shape)
    return [of_made["of_pose"], of_weight, None, of_made["of_coordinates"]]
