"""Dynamic routing from a vote map by a native kernel: votes live in registers and a core's cache.

The algorithm, its papers and its options are those of `ops.dynamic_routing`; the equations of both
passes are those of `ops.fused.loop`, and so is what is kept for the backward pass.

With a factor on agreements the kernel of `ops.native.mixing` sums, an iteration a call.

Departures: half precision is computed in float32, as in the fused form. Numbers are float32, so
float64 goes the fused way, as do windows, vote biases together with a factor on agreements, priors
and biases that differ between samples, other devices, and every call where there is no native
library. Couplings that float32 holds with fewer
digits, below 1.2e-38, are zero: with squash="none" an odd bias that hangs on the sign of a sum of
nothing else is lost with them.
Ambiguities: none.
"""

import ctypes
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from torchcaps.ops import fused
from torchcaps.ops.fused.dynamic import route_by
from torchcaps.ops.fused.results import (
    by_sample,
    of_all_samples,
    recoupled,
    routed,
    speak_for_all_samples,
)
from torchcaps.ops.fused.rules import Agreement
from torchcaps.ops.fused.tiles import MadeOf, made_of, vote_like
from torchcaps.ops.fused.weighted import sums_of
from torchcaps.ops.native.build import library
from torchcaps.ops.native.layout import MOST_ITERATIONS, MOST_THREADS, contiguous, lay_out
from torchcaps.ops.native.mixing import mix
from torchcaps.ops.native.reach import reaches
from torchcaps.ops.operators import Asked, Gradients, Operator, by_stored_votes
from torchcaps.ops.routing.couple import recorded
from torchcaps.ops.routing.dynamic import Detach, DynamicOptions, check_dynamic
from torchcaps.ops.squashing import Squash
from torchcaps.types import Keep, Routed, VoteMap

__all__ = ["dynamic_routing"]

# Where gradients stop at couplings, those of the last iteration are all that a backward pass needs
# to know of the votes; they are kept for it up to this size. Lanes come in at most so many.
KEPT_BYTES, LANES = 16 << 20, 16
NAMES = ("pose", "weight", "vote_bias", "coordinates", "bias", "prior")


def dynamic_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents [*b, j, d], with the options, values and gradients
    of `ops.dynamic_routing` of the materialised votes."""
    votes, asked = vote_like(vote_map), DynamicOptions(**options)
    bias, prior, detach = asked.bias, asked.prior, asked.detach
    factor = asked.agreement
    check_dynamic(votes, asked.iterations, bias, prior, asked.squash, detach, factor, asked.keep)
    if not takes(vote_map, options):
        return fused.dynamic_routing(vote_map, **options)
    if _is_weighed(asked):
        return route_by(mix, vote_map, **options)
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
    wide = None if bias is None else by_sample(bias.to(parts.dtype), votes[..., 0, :, :], None)
    ends = Agreement(asked.squash, asked.odd_bias, wide)
    return recoupled(
        routed(votes, found.poses, found.couplings, record),
        asked.keep,
        asked.couple,
        lambda coupling: ends.query(None, sums_of(vote_map, votes, coupling)),
    )


def takes(vote_map: VoteMap, options: Mapping[str, Any]) -> bool:
    """Whether the kernel routes these votes with these options."""
    asked = DynamicOptions(**options)
    return (
        vote_map.window is None
        and asked.iterations <= MOST_ITERATIONS
        and speak_for_all_samples(asked.bias, asked.prior)
        and reaches(vote_map)
        and not (_is_weighed(asked) and vote_map.bias is not None)
    )


def _is_weighed(asked: DynamicOptions) -> bool:
    """Whether agreement has a factor: this kernel has none, that of `mixing` takes any query."""
    return isinstance(asked.agreement, Tensor) or asked.agreement != 1


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
    (of v always the last), [t, b, …]."""

    sums: Tensor
    kept: Tensor
    poses: Tensor
    couplings: Tensor


class _Job(ctypes.Structure):
    """What a call is given: the fields of the source in their order."""

    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in (
                *("batch", "children", "parents", "rows", "inner", "columns", "types"),
                *("iterations", "threads", "squash", "odd_bias", "leaky", "detach"),
                *("n_poses", "n_couplings"),
            )
        ),
        ("share", ctypes.c_double),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("pose", "weight", "vote_bias", "coordinates", "bias", "prior"),
                *("sums", "poses", "couplings", "kept", "of_poses", "of_couplings"),
                *("of_pose", "of_weight", "of_vote_bias", "of_coordinates", "of_bias", "of_prior"),
                "workspace",
            )
        ),
    )


def _run(numbers: dict[str, int], tensors: dict[str, Tensor | None], share: float) -> None:
    """Fill the tensors that are there to be filled; all are float32 and contiguous."""
    found = library()
    assert found is not None
    present = [x for x in tensors.values() if x is not None]
    assert all(x.is_contiguous() and x.dtype == torch.float32 for x in present)
    pointers = {name: None if x is None else x.data_ptr() for name, x in tensors.items()}
    job = _Job(**numbers, **pointers, share=share)
    backward = ctypes.c_int64("of_pose" in tensors)
    size = found.torchcaps_workspace(ctypes.byref(job), backward)
    workspace = torch.empty(size, dtype=torch.float32)
    job.workspace = workspace.data_ptr()
    found.torchcaps_dynamic(ctypes.byref(job), backward)


def _of_call(given: Given) -> tuple[dict[str, int], dict[str, Tensor | None], float]:
    """Numbers, tensors, and the couplings before anything is known."""
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
        "odd_bias": how.odd_bias,
        "leaky": how.leaky,
        "detach": get_args(Detach).index(how.detach),
    }
    inputs = (votes.pose, laid, votes.bias, votes.coordinates, given.bias, given.prior)
    tensors = dict(zip(NAMES, map(contiguous, inputs), strict=True))
    return numbers, tensors, 1 / (parents + how.leaky)


def _forward(given: Given) -> Mixed:
    found = _shapes(given)
    if not len(given.votes.pose):
        return found
    numbers, tensors, share = _of_call(given)
    if len(found.couplings) == given.how.iterations and given.prior is None:
        found.couplings[0] = share
    filled = {name: x if len(x) else None for name, x in found._asdict().items()}
    counts = {"n_poses": len(found.poses), "n_couplings": len(found.couplings)}
    _run(numbers | counts, tensors | filled, share)
    return found


def _shapes(given: Given) -> Mixed:
    (batch, _, n_in, n_out, size), how = given.votes.counts(), given.how
    steps = {"none": 0, "last": 1, "steps": how.iterations}[how.keep]
    numbers = (batch + LANES - 1) // LANES * LANES * n_in * n_out
    new = given.votes.pose.new_empty
    return Mixed(
        new(how.iterations, batch, n_out, size),
        new(numbers if how.stops and 4 * numbers <= KEPT_BYTES else 0),
        new(max(1, steps), batch, n_out, size),
        new(steps, batch, n_in, n_out),
    )


def _backward(asked: Asked[Given]) -> Gradients:
    votes, (sums, kept) = asked.given.votes, asked.saved
    *_, of_poses, of_couplings = asked.gradients
    if not len(votes.pose):
        return [None] * len(asked.needs)
    numbers, tensors, share = _of_call(asked.given)
    gradients = {
        f"of_{name}": None
        if x is None or not need
        else x.new_empty(x.shape)
        if name == "pose" or name == "weight"
        else x.new_zeros(x.shape)
        for (name, x), need in zip(tensors.items(), asked.needs, strict=True)
    }
    tensors |= gradients | {
        "sums": sums.contiguous(),
        "kept": kept if len(kept) else None,
        "of_poses": contiguous(of_poses),
        "of_couplings": contiguous(of_couplings),
    }
    counts = {
        "n_poses": 0 if of_poses is None else len(of_poses),
        "n_couplings": 0 if of_couplings is None else len(of_couplings),
    }
    _run(numbers | counts, tensors, share)
    of_weight = gradients["of_weight"]
    if of_weight is not None:
        turned = of_weight.transpose(-1, -2) if votes.kind == "matrix" else of_weight
        gradients["of_weight"] = turned.contiguous()
    return list(gradients.values())


mixed = Operator(
    "torchcaps::native_dynamic_routing",
    forward=_forward,
    shapes=_shapes,
    backward=_backward,
    saves=[0, 1],
    what="native dynamic routing",
    instead=by_stored_votes("dynamic_routing"),
)
