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
from collections.abc import Mapping
from typing import Any, get_args

import torch
from torch import Tensor

from torchcaps.ops.fused import distance as fused
from torchcaps.ops.fused.distance import route
from torchcaps.ops.fused.distance_tiles import Given, Measured, shapes
from torchcaps.ops.fused.results import speak_for_all_samples
from torchcaps.ops.native.build import library
from torchcaps.ops.native.layout import MOST_ITERATIONS, MOST_THREADS, contiguous, lay_out
from torchcaps.ops.native.reach import reaches
from torchcaps.ops.operators import Asked, Gradients, Operator, by_stored_votes
from torchcaps.ops.routing.distance import DetachVotes, DistanceOptions
from torchcaps.ops.squashing import Squash
from torchcaps.types import Routed, VoteMap

__all__ = ["distance_routing", "takes"]

NAMES = ("pose", "weight", "vote_bias", "coordinates", "length", "bias", "scale")


def distance_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents [*b, j, d], with the options, values and gradients
    of `ops.distance_routing` of the materialised votes."""

    def operator(given: Given) -> Measured:
        if not takes(vote_map, options):
            return fused.measured(given)
        return measured(given._replace(votes=given.votes.in_one_batch().widened()))

    return route(operator, vote_map, **options)


def takes(vote_map: VoteMap, options: Mapping[str, Any]) -> bool:
    """Whether the kernel routes these votes with these options."""
    asked = DistanceOptions(**options)
    return (
        vote_map.window is None
        and asked.iterations <= MOST_ITERATIONS
        and speak_for_all_samples(asked.bias)
        and reaches(vote_map)
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


def _job(given: Given) -> tuple[dict[str, int], dict[str, Tensor | None]]:
    """Numbers and tensors of a call."""
    votes, how = given.votes, given.how
    laid = lay_out(votes.weight, votes.sharing, votes.kind)
    (batch, children, d_in), (types, parents, columns, inner) = votes.pose.shape, laid.shape
    numbers = {
        "batch": batch,
        "children": children,
        "parents": parents,
        "rows": d_in // inner if votes.kind == "matrix" else 1,
        "inner": inner,
        "columns": columns,
        "types": types,
        "iterations": how.iterations,
        "threads": min(torch.get_num_threads(), children, MOST_THREADS),
        "squash": get_args(Squash).index(how.squash),
        "detach": get_args(DetachVotes).index(how.detach),
        "by_sample": how.by_sample,
    }
    inputs = (votes.pose, laid, votes.bias, votes.coordinates, *given[1:4])
    return numbers, dict(zip(NAMES, map(contiguous, inputs), strict=True))


def _forward(given: Given) -> Measured:
    found, how = shapes(given), given.how
    if not len(given.votes.pose):
        # As of no distances, or as given.
        found.means.fill_(math.nan) if given.scale is None else found.means.copy_(given.scale)
        return found
    numbers, tensors = _job(given)
    if len(found.couplings) == how.iterations:
        found.couplings[0] = 1 / numbers["parents"]
    counts = {"n_poses": len(found.poses), "n_couplings": len(found.couplings)}
    _run(numbers | counts, tensors | found._asdict(), how.log_odds)
    return found


def _backward(asked: Asked[Given]) -> Gradients:
    given, votes = asked.given, asked.given.votes
    *_, of_means, of_poses, of_couplings = asked.gradients
    numbers, tensors = _job(given)
    gradients = {
        f"of_{name}": None if x is None or not need else x.new_zeros(x.shape)
        for (name, x), need in zip(tensors.items(), asked.needs, strict=True)
    }
    of_weight, of_scale = gradients["of_weight"], gradients["of_scale"]
    if len(votes.pose):
        saved = zip(("sums", "slopes", "means"), asked.saved, strict=True)
        tensors |= gradients | {name: x.contiguous() for name, x in saved}
        recorded = {"of_means": of_means, "of_poses": of_poses, "of_couplings": of_couplings}
        tensors |= {name: contiguous(x) for name, x in recorded.items()}
        counts = {
            "n_poses": 0 if of_poses is None else len(of_poses),
            "n_couplings": 0 if of_couplings is None else len(of_couplings),
        }
        _run(numbers | counts, tensors, given.how.log_odds)
    elif of_means is not None and of_scale is not None:
        of_scale.copy_(of_means)
    if of_weight is not None:
        turned = of_weight.transpose(-1, -2) if votes.kind == "matrix" else of_weight
        gradients["of_weight"] = turned.contiguous()
    return list(gradients.values())


measured = Operator(
    "torchcaps::native_distance_routing",
    forward=_forward,
    shapes=shapes,
    backward=_backward,
    saves=[0, 1, 2],
    what="native distance routing",
    instead=by_stored_votes("distance_routing"),
)
