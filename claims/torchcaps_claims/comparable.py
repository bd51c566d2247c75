"""Whether a number of a smaller run can be held against the printed one.

A run of fewer images or epochs can, if its network is the paper's and as accurate, by the rule for
every number: at most 1.25 times the printed errors, or, where the paper trains until an accuracy is
reached, 1.25 times the errors that are left there. Then it is the same thing, trained more quickly.
A network that is narrower, right less often, or pruned less or more is another thing, and its
numbers neither confirm nor refute those of a paper. While pruning still goes on, how far it came is
not held against the paper. Entropy and keys depend on the number of levels of couplings; where a
paper does not name it, it prints numbers of another thing. Two such networks can still be compared
with each other, so this is not asked of statements.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from torchcaps.models import MODELS
from torchcaps.study.record import Record, Seed
from torchcaps.study.same import trained_in, trains
from torchcaps_claims.claim import Claim, claims
from torchcaps_claims.job import Job
from torchcaps_claims.plan import Plan
from torchcaps_claims.plans import plan_of
from torchcaps_claims.verdict import is_as_right

# As far as the share of pruned weights may lie from the paper's, in points.
SPARSER = 5.0
OF_SPARSITY = {"sparsity", "nonzero_parameters"}
OF_LEVELS = {"entropy", "keys"}


def why_incomparable(plan: Plan, record: Record) -> str | None:
    """Why a number of a record says nothing about the number that a claim prints; None where it
    does, as those of the full protocol always do: "its width is 64 and not 256"."""
    if record.reduced is None:
        return None
    (job,) = plan.jobs
    paper = plan.claim.paper
    return (
        other_network(job, record)
        or _other_accuracy(job, paper, record)
        or _still_pruned(job, record)
        or _other_sparsity(job, paper, record)
        or _own_levels(plan, job)
    )


def why_it_leans(plan: Plan, records: Sequence[Record]) -> str | None:
    """Why records say only which way a statement leans: a network is narrower than the paper's, or
    less often right than is printed of it, or trained for less long where nothing is; None where
    they decide it."""
    smaller = [record for record in records if record.reduced is not None]
    width = next((why for each in smaller if (why := narrower(plan, each))), None)
    # Of the networks that are right less often than the paper's, name the worst.
    shares = (share for each in smaller if (share := _less_right(plan.claim, each)))
    least_right = min(shares, default=None)
    reasons = [why for why in (width, least_right and least_right[1]) if why]
    shorter = (why for each in smaller if (why := _shorter(plan, each)))
    return "; ".join(reasons) or next(shorter, None)


def width_of(record: Record) -> int | None:
    """Read how wide its network is; None for one of its usual width, or that has no widths."""
    usual = MODELS[record.recipe["model"]].options.get("width")
    width: int | None = record.recipe.get("options", {}).get("width", usual)
    return None if width == usual else width


def accuracies_of(record: Record) -> list[float]:
    """Read how often each seed is right that was looked at, in percent."""
    return [seed.values["accuracy"] for seed in record.seeds if "accuracy" in seed.values]


def narrower(plan: Plan, record: Record) -> str | None:
    """Say that its network is narrower than the paper's; None where it is as wide."""
    model, width = record.recipe["model"], width_of(record)
    if width is None or width in {job.options.get("width") for job in plan.jobs}:
        return None
    return f"{model} is {width} wide and not {MODELS[model].options['width']}"


def _asked(claim: Claim, record: Record) -> float | None:
    """How often the paper's network is right; None where nobody knows."""
    stop_at = record.recipe.get("stop_at")
    printed = _printed_of(claim.paper).get(trained_in(record) or "", [])
    return max([*printed, *([100 * stop_at] if stop_at else [])], default=None)


def _shorter(plan: Plan, record: Record) -> str | None:
    """Say that a network of whose accuracy the paper says nothing was trained for less long than is
    planned: whether it is as right as the paper's nobody knows."""
    epochs, planned = record.recipe["epochs"], max(job.recipe().epochs for job in plan.jobs)
    if epochs >= planned or _asked(plan.claim, record) is not None:
        return None
    return (
        f"{record.recipe['model']} is trained for {epochs} epochs, and how right the paper's is on "
        f"{record.recipe['data']} is not printed"
    )


def _less_right(claim: Claim, record: Record) -> tuple[float, str] | None:
    """Say how often a network is right, as a number and in words; None where that is as often as
    the paper's."""
    values, least = accuracies_of(record), _asked(claim, record)
    if least is None or not values or is_as_right(values, least):
        return None
    ours = statistics.fmean(values)
    return ours, (
        f"{record.recipe['model']} is right on {ours:.1f} % of its test images, and the paper's on "
        f"{least:.1f} %"
    )


def other_network(job: Job, record: Record) -> str | None:
    """The option in which a network is not the one that is planned. As in public code it is."""
    known = MODELS[job.model].options
    ours: Mapping[str, Any] = {**known, **record.recipe.get("options", {})}
    theirs: Mapping[str, Any] = {**known, **job.options}
    for name in {**theirs, **ours}:
        is_as_in_code = name == "as_code" and ours.get(name)
        if not is_as_in_code and repr(ours.get(name)) != repr(theirs.get(name)):
            return f"its {name} is {ours.get(name)} and not {theirs.get(name)}"
    return None


def _other_accuracy(job: Job, paper: str, record: Record) -> str | None:
    printed = list(_printed(paper).get(job.key, ()))
    # What a protocol trains up to is an accuracy of the paper too.
    stop_at = job.recipe().stop_at
    if stop_at is not None:
        printed.append(100 * stop_at)
    values = accuracies_of(record)
    if not printed:
        return "the paper prints no accuracy of this network on its own test images"
    if not values:
        return "it has no accuracy on its own test images"
    ours = statistics.fmean(values)
    if stop_at is not None and not is_as_right(values, 100 * stop_at):
        return f"{ours:.1f} % of its test images are right, and the paper stops at {stop_at:.1%}"
    most = max(printed)
    if is_as_right(values, most):
        return None
    return f"{ours:.1f} % of its test images are right, and {most:.1f} % of the paper's"


def _still_pruned(job: Job, record: Record) -> str | None:
    """How many weights are left is a number of how long a network is pruned, while more go every
    epoch."""
    if OF_SPARSITY.isdisjoint(job.metrics):
        return None
    curves = [[row["sparsity"] for row in s.per_epoch if "sparsity" in row] for s in record.seeds]
    ends = [curve[-2:] for curve in curves if len(curve) > 1]
    if not ends:
        return None
    # As they are printed: one weight more is no rise.
    before, last = (round(100 * statistics.fmean(x), 1) for x in zip(*ends, strict=True))
    if last <= before:
        return None
    return f"its sparsity still rises when it ends, from {before:.1f} to {last:.1f} % in one epoch"


def _other_sparsity(job: Job, paper: str, record: Record) -> str | None:
    printed = _printed_sparsities(paper).get(job.key)
    if printed is None or not OF_SPARSITY.isdisjoint(job.metrics):
        return None
    shares = [share for each in record.seeds if (share := _pruned(each)) is not None]
    if not shares:
        return "it does not say how many of its weights are pruned"
    ours = statistics.fmean(shares)
    if abs(ours - printed) <= SPARSER:
        return None
    return f"{ours:.1f} % of its weights are pruned, and {printed:.1f} % of the paper's"


def _pruned(seed: Seed) -> float | None:
    """The share of its weights that are pruned, in percent: as it was measured, or as the last
    epoch has it."""
    if "sparsity" in seed.values:
        return seed.values["sparsity"]
    shares = [row["sparsity"] for row in seed.per_epoch if "sparsity" in row]
    return 100 * shares[-1] if shares else None


def _own_levels(plan: Plan, job: Job) -> str | None:
    if plan.left_open is None or OF_LEVELS.isdisjoint(job.metrics):
        return None
    return "the paper does not say on how many levels its couplings are"


def _numbers(paper: str, kind: str) -> Iterator[tuple[Job, float]]:
    """Yield the numbers of a kind that a paper prints of one network each."""
    for claim in claims(paper=paper, kind=kind):
        jobs = plan_of(claim).jobs
        if len(jobs) == 1 and isinstance(claim.value, int | float):
            yield jobs[0], float(claim.value)


@cache
def _printed_sparsities(paper: str) -> dict[str, float]:
    """The share of weights, in percent, that a paper has pruned, by the key of the job that trains
    the network."""
    return {job.key: value for job, value in _numbers(paper, "sparsity")}


@cache
def _printed(paper: str) -> dict[str, list[float]]:
    """The accuracies that a paper prints of a network on the test images of its own data set, by
    the key of the job that trains it."""
    found: dict[str, list[float]] = {}
    for job, value in _numbers(paper, "accuracy"):
        is_clean = job.split == "test" and job.test == job.fields.get("test_data", job.train)
        # Means of seeds, and not the best of them.
        if is_clean and job.metrics == ("accuracy",) and "best_seed" not in job.at:
            found.setdefault(job.key, []).append(value)
    return found


@cache
def _printed_of(paper: str) -> dict[str, list[float]]:
    """Key the accuracies of `_printed` by what is trained, in full or reduced."""
    found: dict[str, list[float]] = {}
    printed = _printed(paper)
    for claim in claims(paper=paper):
        for job in plan_of(claim).jobs:
            for each in (job, job.smaller()) if job.key in printed else ():
                found[trains(each.recipe())] = printed[job.key]
    return found
