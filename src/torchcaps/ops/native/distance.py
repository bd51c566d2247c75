"""Distance routing from a vote map by a native kernel: votes live in a core's first cache.

The algorithm, its papers and its options are those of `ops.distance_routing`; the equations of both
passes are those of `ops.fused.distance_routing`, and so is what is kept for the backward pass. The
forward pass holds no distances: they are measured twice. The backward pass makes the gradients of
all iterations at once.

Departures: half precision is computed in float32, as in the fused form. Numbers are float32, so
float64 goes the fused way, as do windows, biases that differ between samples, other devices, and
every call where there is no native library; gradients of couplings that were recorded do so too.
Ambiguities: none.
"""

import ctypes
import math
from collections.abc import Mapping
from typing import Any, get_args

from torch import Tensor

from torchcaps._checks import is_between
from torchcaps.ops.fused import distance as fused
from torchcaps.ops.fused.distance_gradients import gradients
from torchcaps.ops.fused.distance_tiles import Given, Measured, shapes
from torchcaps.ops.fused.results import speak_for_all_samples
from torchcaps.ops.native.layout import (
    MOST_ITERATIONS,
    LoopJob,
    contiguous,
    counts_of,
    fields,
    gradients_of,
    laid_back,
    parts_of,
    run,
    sizes_of,
)
from torchcaps.ops.native.reach import reaches
from torchcaps.ops.operators import Asked, Gradients, Operator, by_stored_votes
from torchcaps.ops.routing.distance import DetachVotes, DistanceOptions
from torchcaps.types import Routed, VoteMap


def distance_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents [*b, j, d], with the options, values and gradients
    of `ops.distance_routing` of the materialised votes."""

    def operator(given: Given) -> Measured:
        if not takes(vote_map, options):
            return fused.measured(given)
        return measured(given._replace(votes=given.votes.in_one_batch().widened()))

    return fused.route(operator, vote_map, **options)


def takes(vote_map: VoteMap, options: Mapping[str, Any]) -> bool:
    """Say whether the kernel routes these votes with these options."""
    asked = DistanceOptions(**options)
    return (
        vote_map.window is None
        and is_between(1, asked.iterations, MOST_ITERATIONS)
        and speak_for_all_samples(asked.bias)
        and reaches(vote_map)
    )


class _Job(LoopJob):
    """What a call is given: the fields of the source in their order."""

    _fields_ = (
        ("by_sample", ctypes.c_int64),
        ("log_odds", ctypes.c_double),
        *fields(places="length scale slopes means of_means of_length of_scale"),
    )


def _job(given: Given, poses: Tensor | None, couplings: Tensor | None) -> _Job:
    """Make a call that records these, or is given the gradients of poses."""
    how = given.how
    return _Job(
        **sizes_of(given.votes, given.votes.pose.shape[-2]),
        **counts_of(how.iterations, poses, couplings, how.squash),
        detach=get_args(DetachVotes).index(how.detach),
        by_sample=how.by_sample,
        log_odds=how.log_odds,
    )


def _read(given: Given) -> dict[str, Tensor | None]:
    more = {"length": given.length, "bias": given.bias, "scale": given.scale}
    return parts_of(given.votes) | {name: contiguous(x) for name, x in more.items()}


def _forward(given: Given) -> Measured:
    found = shapes(given)
    if not len(given.votes.pose):
        # As of no distances, or as given.
        found.means.fill_(math.nan) if given.scale is None else found.means.copy_(given.scale)
        return found
    job = _job(given, found.poses, found.couplings)
    if len(found.couplings) == given.how.iterations:
        found.couplings[0] = 1 / job.parents
    run("distance", job, _read(given) | found._asdict(), ctypes.c_int64(False))
    return found


def _backward(asked: Asked[Given]) -> Gradients:
    *_, of_means, of_poses, of_couplings = asked.gradients
    if not len(asked.given.votes.pose):
        # What an operator gives is none of what it is given.
        return [*[None] * (len(asked.needs) - 1), None if of_means is None else of_means.clone()]
    if of_couplings is not None:
        return gradients(asked)
    read = _read(asked.given)
    found = gradients_of(read, asked.needs, written=("pose", "weight"))
    saved = zip(("sums", "slopes", "means"), asked.saved, strict=True)
    given = {"of_means": contiguous(of_means), "of_poses": contiguous(of_poses)}
    tensors = read | found | given | {name: x.contiguous() for name, x in saved}
    run("distance", _job(asked.given, of_poses, None), tensors, ctypes.c_int64(True))
    return laid_back(found, asked.given.votes)


measured = Operator(
    "torchcaps::native_distance_routing",
    forward=_forward,
    shapes=shapes,
    backward=_backward,
    saves=[0, 1, 2],
    what="native distance routing",
    instead=by_stored_votes("distance_routing"),
    device_types="cpu",
)
