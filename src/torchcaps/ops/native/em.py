"""EM routing from a vote map by native kernels: votes live in registers.

The algorithm, its papers and its options are those of `ops.em_routing`. The two steps that meet
votes are those of `ops.fused.em_routing`, with the couplings inside: no tensor of them is made but
ln r, and its gradient. With t_ij = ln r_ij + ln a_i and c_j = Σ_i w_ij ∂w_ij,

    ∂t_ij = w_ij (∂w_ij − c_j + m_j ∂m_j)                     back through the weights and m_j
    ∂x_ij = ∂ln r_ij + r_ij (∂ln s_i − Σ_k ∂ln r_ik)          with ln r = x − ln s, s = Σ_j exp x

where c_j is the sum of the numbers found: what it is equal to on paper, ⟨ν_j, σ_j²⟩, would leave a
child that has all the weight with a rounding of large numbers.

Departures: half precision is computed in float32, as in the fused form. Numbers are float32, so
float64 goes the fused way, as do other devices, and every call where there is no native library.
Ambiguities: none.

Kept are the children, the weights, the parents of every iteration and one tensor of couplings:
those of the last, as in the fused form.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from torchcaps.ops.fused.em import Met, Tiled, route
from torchcaps.ops.fused.tiles import MadeOf
from torchcaps.ops.native.layout import (
    VotesJob,
    contiguous,
    fields,
    gradients_of,
    laid_back,
    parts_of,
    run,
    sizes_of,
)
from torchcaps.ops.native.reach import reaches
from torchcaps.ops.operators import Asked, Gradients, Operator, by_stored_votes
from torchcaps.types import Routed, VoteMap

# As in the source: of a block of lanes, on any machine.
PLACES = 16
PASSES = ("fit", "fit_backward", "assign", "assign_backward")


def em_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents, with the options, values and gradients of
    `ops.fused.em_routing`."""
    return route(Native if reaches(vote_map) else Tiled, vote_map, **options)


class Native:
    """The steps by kernels. Couplings are [block of lanes, i, j, lane] in one row, a lane is a
    sample seen through a window."""

    def __init__(self, votes: MadeOf):
        self.votes = votes.in_one_batch().widened()

    def fit(self, log_r: Tensor | None, log_a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.lead = log_a.shape[:2]
        found = fit(Weighed(log_r, log_a, self.votes))
        return found.mass, found.mean, found.variance

    def assign(
        self, likely: Tensor, mean: Tensor, variance: Tensor, wants_seen: bool
    ) -> tuple[Tensor, Tensor | None]:
        return assign(Compared(likely, Met(mean, variance, self.votes)))

    def laid_out(self, log_r: Tensor) -> Tensor:
        n_batch, n_windows = self.lead
        _, _, children, parents, _ = self.votes.counts()
        blocks = log_r.view(-1, children, parents, PLACES)
        lanes = blocks.permute(0, 3, 1, 2).flatten(0, 1)[: n_batch * n_windows]
        return lanes.view(n_batch, n_windows, *lanes.shape[1:])


class Weighed(NamedTuple):
    """Votes, their couplings as `Native` lays them, none for 1, and activations of children."""

    log_r: Tensor | None
    log_a: Tensor
    votes: MadeOf


class Fitted(NamedTuple):
    """Parents; top, total and rest are for the backward pass."""

    mass: Tensor
    mean: Tensor
    variance: Tensor
    top: Tensor
    total: Tensor
    rest: Tensor


class Compared(NamedTuple):
    """Votes, and parents that they are assigned to."""

    likely: Tensor
    met: Met


class Assigned(NamedTuple):
    """ln r and ln s."""

    log_r: Tensor
    seen: Tensor


class _Job(VotesJob):
    """What a call is given: the fields of the source in their order."""

    _fields_ = fields(
        "pass_",
        "log_r log_a mass mean variance top total rest likely seen of_mean of_variance rise "
        "of_log_r of_seen to_log_r to_log_a to_likely to_mean to_variance",
    )


def _run(
    name: str, votes: MadeOf, parts: Mapping[str, Tensor | None], **tensors: Tensor | None
) -> None:
    """Fill the tensors that are there to be filled."""
    samples, windows, *_ = votes.counts()
    sizes = sizes_of(votes, math.ceil(samples * windows / PLACES))
    window = votes.vote_map.window
    child_id = None if window is None else window.child_id().contiguous()
    seen = None if child_id is None else child_id.data_ptr()
    run("em", _Job(pass_=PASSES.index(name), child_id=seen, **sizes), {**parts, **tensors})


def _fit(given: Weighed) -> Fitted:
    found = _fit_shapes(given)
    if found.mass.numel():
        log_r, log_a = contiguous(given.log_r), given.log_a.contiguous()
        parts = parts_of(given.votes)
        _run("fit", given.votes, parts, log_r=log_r, log_a=log_a, **found._asdict())
    return found


def _fit_shapes(given: Weighed) -> Fitted:
    samples, windows, _, parents, size = given.votes.counts()
    lead, new = (samples, windows), given.log_a.new_empty
    # Where shares are all alike, one parent speaks for all.
    shares = 1 if given.log_r is None else parents
    mass, mean, variance, rest = (
        new((*lead, parents, *more)) for more in ((), (size,), (size,), (size,))
    )
    return Fitted(mass, mean, variance, new((*lead, shares)), new((*lead, shares)), rest)


def _fit_backward(asked: Asked[Weighed]) -> Gradients:
    (log_r, log_a, votes), (mass, mean, _, top, total, rest) = asked.given, asked.saved
    of_mass, of_mean, of_variance, *_ = asked.gradients
    of_mean, of_variance = (
        mean.new_zeros(mean.shape) if x is None else x.contiguous() for x in (of_mean, of_variance)
    )
    of_mean = of_mean - 2 * of_variance * rest
    rise = mass.new_zeros(mass.shape) if of_mass is None else of_mass * mass
    # The kernel keeps ∂w there, whoever asks.
    of_log_r = None if log_r is None else log_r.new_empty(log_r.shape)
    if of_log_r is not None and math.prod(mass.shape[:2]) % PLACES:
        # Of the last block, which the kernel fills as far as lanes go.
        of_log_r[-(math.prod(votes.counts()[2:4]) * PLACES) :] = 0
    # Not like it: what a kernel fills is contiguous.
    of_log_a = log_a.new_empty(log_a.shape)
    parts = parts_of(votes)
    of_made = gradients_of(parts, asked.needs[2:])
    if mass.numel():
        _run(
            "fit_backward",
            votes,
            parts | of_made,
            log_r=contiguous(log_r),
            log_a=log_a.contiguous(),
            mean=mean.contiguous(),
            top=top.contiguous(),
            total=total.contiguous(),
            of_mean=of_mean,
            of_variance=of_variance,
            rise=rise.contiguous(),
            to_log_r=of_log_r,
            to_log_a=of_log_a,
        )
    return [of_log_r if asked.needs[0] else None, of_log_a, *laid_back(of_made, votes)]


def _assign(given: Compared) -> Assigned:
    found, (mean, variance, votes) = _assign_shapes(given), given.met
    if given.likely.numel():
        likely = given.likely.contiguous()
        mean, variance = mean.contiguous(), variance.contiguous()
        met = {"likely": likely, "mean": mean, "variance": variance}
        _run("assign", votes, parts_of(votes), **met, **found._asdict())
    return found


def _assign_shapes(given: Compared) -> Assigned:
    samples, windows, children, parents, _ = given.met.votes.counts()
    blocks = (samples * windows + PLACES - 1) // PLACES
    # In one row: of one block, torch.export would take the axis of blocks for one of no others.
    log_r = given.likely.new_empty(blocks * children * parents * PLACES)
    return Assigned(log_r, given.likely.new_empty((samples, windows, children)))


def _assign_backward(asked: Asked[Compared]) -> Gradients:
    (log_r,), (of_log_r, of_seen) = asked.saved, asked.gradients
    likely, (mean, variance, votes) = asked.given
    of_likely, of_mean, of_variance = (x.new_empty(x.shape) for x in (likely, mean, variance))
    parts = parts_of(votes)
    of_made = gradients_of(parts, asked.needs[3:])
    if mean.numel():
        _run(
            "assign_backward",
            votes,
            parts | of_made,
            log_r=log_r.contiguous(),
            mean=mean.contiguous(),
            variance=variance.contiguous(),
            of_log_r=log_r.new_zeros(log_r.shape) if of_log_r is None else of_log_r.contiguous(),
            of_seen=contiguous(of_seen),
            to_likely=of_likely,
            to_mean=of_mean,
            to_variance=of_variance,
        )
    return [of_likely, of_mean, of_variance, *laid_back(of_made, votes)]


fit = Operator(
    "torchcaps::native_em_fit",
    forward=_fit,
    shapes=_fit_shapes,
    backward=_fit_backward,
    saves=range(6),
    what="native EM routing",
    instead=by_stored_votes("em_routing"),
    device_types="cpu",
)
assign = Operator(
    "torchcaps::native_em_assign",
    forward=_assign,
    shapes=_assign_shapes,
    backward=_assign_backward,
    saves=[0],
    what="native EM routing",
    instead=by_stored_votes("em_routing"),
    device_types="cpu",
)
