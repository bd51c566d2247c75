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

from torch import Tensor

from torchcaps._checks import is_between
from torchcaps.ops.fused import distance as fused
from torchcaps.ops.fused.distance import route
from torchcaps.ops.fused.distance_tiles import Given, Measured, shapes
from torchcaps.ops.fused.results import speak_for_all_samples
from torchcaps.ops.native.layout import MOST_ITERATIONS, contiguous, lay_back
from torchcaps.ops.native.reach import reaches
from torchcaps.ops.native.routing import MADE_OF, SIZES, given_of, gradients_of, run
from torchcaps.ops.operators import Asked, Gradients, Operator, by_stored_votes
from torchcaps.ops.routing.distance import DetachVotes, DistanceOptions
from torchcaps.ops.squashing import Squash
from torchcaps.types import Routed, VoteMap


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
        and is_between(1, asked.iterations, MOST_ITERATIONS)
        and speak_for_all_samples(asked.bias)
        and reaches(vote_map)
    )


class _Job(ctypes.Structure):
    """What a call is given: the fields of the source in their order."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in (*SIZES, "squash", "detach", "by_sample")),
        ("log_odds", ctypes.c_double),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *(*MADE_OF, "length", "bias", "scale"),
                *("sums", "slopes", "means", "poses", "couplings"),
                *("of_means", "of_poses", "of_couplings"),
                *(f"of_{name}" for name in (*MADE_OF, "length", "bias", "scale")),
                "workspace",
            )
        ),
    )


def _given(given: Given) -> tuple[dict[str, float], dict[str, Tensor | None]]:
    """Numbers and tensors of a call."""
    votes, length, bias, scale, how = given
    sizes, tensors = given_of(votes, how.iterations, length=length, bias=bias, scale=scale)
    options = {
        "squash": get_args(Squash).index(how.squash),
        "detach": get_args(DetachVotes).index(how.detach),
        "by_sample": how.by_sample,
        "log_odds": how.log_odds,
    }
    return sizes | options, tensors


def _forward(given: Given) -> Measured:
    found = shapes(given)
    if not len(given.votes.pose):
        # As of no distances, or as given.
        found.means.fill_(math.nan) if given.scale is None else found.means.copy_(given.scale)
        return found
    numbers, tensors = _given(given)
    if len(found.couplings) == given.how.iterations:
        found.couplings[0] = 1 / numbers["parents"]
    run("distance", _Job, numbers, tensors | found._asdict())
    return found


def _backward(asked: Asked[Given]) -> Gradients:
    votes, (*_, of_means, of_poses, of_couplings) = asked.given.votes, asked.gradients
    if not len(votes.pose):
        # What an operator gives is none of what it is given.
        return [*[None] * (len(asked.needs) - 1), None if of_means is None else of_means.clone()]
    numbers, tensors = _given(asked.given)
    gradients = gradients_of(tensors, asked.needs)
    saved = zip(("sums", "slopes", "means"), asked.saved, strict=True)
    tensors |= gradients | {name: x.contiguous() for name, x in saved}
    recorded = {"of_means": of_means, "of_poses": of_poses, "of_couplings": of_couplings}
    run("distance", _Job, numbers, tensors | {name: contiguous(x) for name, x in recorded.items()})
    gradients["of_weight"] = lay_back(gradients["of_weight"], votes.kind)
    return list(gradients.values())


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
