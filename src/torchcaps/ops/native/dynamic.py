"""Dynamic routing from a vote map by a native kernel: votes live in registers and a core's cache.

The algorithm, its papers and its options are those of `ops.dynamic_routing`; the equations of both
passes are those of `ops.fused.loop`. Kept for the backward pass are the sums of every iteration
and, where gradients stop at couplings, the couplings of the last, up to KEPT_BYTES.

Departures: half precision is computed in float32, as in the fused form. Numbers are float32, so
float64 goes the fused way, as do windows, a factor on agreements, priors and biases that differ
between samples, other devices, and every call where there is no native library. Couplings that
float32 holds with fewer digits, below 1.2e-38, are zero: with squash="none" an odd bias that hangs
on the sign of a sum of nothing else is lost with them.
Ambiguities: none.
"""

import ctypes
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from torchcaps._checks import is_between
from torchcaps.ops import fused
from torchcaps.ops.fused.dynamic import biases
from torchcaps.ops.fused.results import of_all_samples, outputs, routed, speak_for_all_samples
from torchcaps.ops.fused.rules import Agreement
from torchcaps.ops.fused.tiles import MadeOf, made_of, vote_like
from torchcaps.ops.fused.weighted import sums_of
from torchcaps.ops.native.layout import (
    MOST_ITERATIONS,
    LoopJob,
    contiguous,
    counts_of,
    gradients_of,
    laid_back,
    parts_of,
    run,
    sizes_of,
)
from torchcaps.ops.native.reach import reaches
from torchcaps.ops.operators import Asked, Gradients, Operator, by_stored_votes
from torchcaps.ops.routing.couple import recorded
from torchcaps.ops.routing.dynamic import Detach, DynamicOptions, check_dynamic
from torchcaps.ops.squashing import Squash
from torchcaps.types import Keep, Routed, VoteMap

# Where gradients stop at couplings, those of the last iteration are all that a backward pass needs
# to know of the votes; they are kept for it up to this size. Lanes come in at most so many.
KEPT_BYTES, LANES = 16 << 20, 16


def dynamic_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents [*b, j, d], with the options, values and gradients
    of `ops.dynamic_routing` of the materialised votes."""
    votes, asked = vote_like(vote_map), DynamicOptions(**options)
    bias, prior, detach = asked.bias, asked.prior, asked.detach
    check_dynamic(votes, asked)
    if not takes(vote_map, options):
        return fused.dynamic_routing(vote_map, **options)
    n_in, n_out, size = votes.shape[-3:]
    record = recorded(asked.keep, asked.couple)
    parts = made_of(vote_map, votes)
    tensors = (*parts[:4], bias, prior)
    is_trained = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
    routes = asked.iterations > 1 or prior is not None
    found = mixed(
        Given(
            parts.in_one_batch().widened(),
            of_all_samples(bias, n_out, size),
            of_all_samples(prior, n_in, n_out),
            How(
                asked.iterations,
                asked.odd_bias,
                asked.leaky,
                asked.squash,
                detach,
                record,
                stops=is_trained and routes and detach in ("votes", "coupling"),
            ),
        )
    )
    ends = Agreement(asked.squash, asked.odd_bias, biases(vote_map, votes, bias))
    return routed(
        votes,
        found.poses,
        found.couplings,
        asked.keep,
        asked.couple,
        lambda coupling: ends.parents(sums_of(vote_map, votes, coupling)),
    )


def takes(vote_map: VoteMap, options: Mapping[str, Any]) -> bool:
    """Say whether the kernel routes these votes with these options."""
    asked = DynamicOptions(**options)
    return (
        vote_map.window is None
        and is_between(1, asked.iterations, MOST_ITERATIONS)
        and speak_for_all_samples(asked.bias, asked.prior)
        and reaches(vote_map)
        # It lacks the factor on agreements.
        and not (isinstance(asked.agreement, Tensor) or asked.agreement != 1)
    )


class How(NamedTuple):
    """The options of the kernel."""

    iterations: int
    odd_bias: bool
    leaky: bool
    squash: Squash
    detach: Detach
    keep: Keep
    # Whether gradients stop at the couplings of a step that is trained.
    stops: bool


class Given(NamedTuple):
    """Votes, and parameters of all samples."""

    votes: MadeOf
    bias: Tensor | None  # [j, d]
    prior: Tensor | None  # [i, j]
    how: How


class Mixed(NamedTuple):
    """s of every iteration and what else the backward pass wants; v and c of the iterations kept
    (of v always the last), [t, b, 1, …]."""

    sums: Tensor
    kept: Tensor
    poses: Tensor
    couplings: Tensor


class _Job(LoopJob):
    """What a call is given: the fields of the source in their order."""

    _fields_ = (
        ("odd_bias", ctypes.c_int64),
        ("leaky", ctypes.c_int64),
        ("share", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("prior", "kept", "of_prior")),
    )


def _job(given: Given, poses: Tensor | None, couplings: Tensor | None) -> _Job:
    """Make a call that records these, or is given their gradients."""
    how, sizes = given.how, sizes_of(given.votes, given.votes.pose.shape[-2])
    return _Job(
        **sizes,
        **counts_of(how.iterations, poses, couplings, how.squash),
        odd_bias=how.odd_bias,
        leaky=how.leaky,
        detach=get_args(Detach).index(how.detach),
        # The couplings before anything is known.
        share=1 / (sizes["parents"] + how.leaky),
    )


def _read(given: Given) -> dict[str, Tensor | None]:
    more = {"bias": contiguous(given.bias), "prior": contiguous(given.prior)}
    return parts_of(given.votes) | more


def _forward(given: Given) -> Mixed:
    found = _shapes(given)
    if not len(given.votes.pose):
        return found
    job = _job(given, found.poses, found.couplings)
    if len(found.couplings) == given.how.iterations and given.prior is None:
        found.couplings[0] = job.share
    run("dynamic", job, _read(given) | found._asdict(), ctypes.c_int64(False))
    return found


def _shapes(given: Given) -> Mixed:
    counts, how, pose = given.votes.counts(), given.how, given.votes.pose
    batch, _, n_in, n_out, _ = counts
    sums, *others = outputs(pose, counts[:2], counts[2:], how.iterations, how.keep)
    numbers = (batch + LANES - 1) // LANES * LANES * n_in * n_out
    kept = numbers if how.stops and 4 * numbers <= KEPT_BYTES else 0
    return Mixed(sums, pose.new_empty(kept), *others)


def _backward(asked: Asked[Given]) -> Gradients:
    votes, (sums, kept) = asked.given.votes, asked.saved
    *_, of_poses, of_couplings = asked.gradients
    if not len(votes.pose):
        return [None] * len(asked.needs)
    read = _read(asked.given)
    gradients = gradients_of(read, asked.needs, written=("pose", "weight"))
    tensors = read | gradients | {"sums": sums.contiguous(), "kept": kept}
    tensors |= {"of_poses": contiguous(of_poses), "of_couplings": contiguous(of_couplings)}
    run("dynamic", _job(asked.given, of_poses, of_couplings), tensors, ctypes.c_int64(True))
    return laid_back(gradients, votes)


mixed = Operator(
    "torchcaps::native_dynamic_routing",
    forward=_forward,
    shapes=_shapes,
    backward=_backward,
    saves=[0, 1],
    what="native dynamic routing",
    instead=by_stored_votes("dynamic_routing"),
    device_types="cpu",
)
