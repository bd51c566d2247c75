"""Whether a number of a smaller run can be held against the printed one.

A run of fewer images or epochs can where it is the paper's network, and about as accurate as the
paper's: then it is the same thing, trained more quickly. A narrower network, or one that is right
far less often, is another thing, and its numbers neither confirm nor refute those of a paper. Where
a paper trains until an accuracy is reached, that is what its numbers are of, and a run has to come
nearer to it. Two such networks can still be compared with each other, so this is not asked of
statements.
"""

import statistics
from collections.abc import Mapping
from functools import cache
from typing import Any

from torchcaps.models import MODELS
from torchcaps.study.claim import claims
from torchcaps.study.job import Job
from torchcaps.study.papers import plan_of
from torchcaps.study.record import Record

__all__ = ["POINTS", "SHORT", "why_incomparable"]

# As far as the accuracy of a reduced run may lie from the paper's,
POINTS = 2.0
# and below the one at which the paper stops.
SHORT = 0.5


def why_incomparable(job: Job, paper: str, record: Record) -> str | None:
    """Why a number of a record says nothing about the number that a job would give; None where it
    does, as those of the full protocol always do.

    Arguments:
        job: what a number of the paper needs, at full size.
        paper: the key of the paper.
        record: what was run.

    >>> why_incomparable(plan.jobs[0], "gu2021", record)  # doctest: +SKIP
    'its width is 64 and not 256'
    """
    if record.reduced is None:
        return None
    return _other_network(job, record) or _other_accuracy(job, paper, record)


def _other_network(job: Job, record: Record) -> str | None:
    known = MODELS[job.model].options if job.model in MODELS else {}
    ours: Mapping[str, Any] = {**known, **record.recipe.get("options", {})}
    theirs: Mapping[str, Any] = {**known, **job.options}
    for name in {**theirs, **ours}:
        if repr(ours.get(name)) != repr(theirs.get(name)):
            return f"its {name} is {ours.get(name)} and not {theirs.get(name)}"
    return None


def _other_accuracy(job: Job, paper: str, record: Record) -> str | None:
    printed = list(_printed(paper).get(job.key, ()))
    # What a protocol trains up to is an accuracy of the paper too.
    stop_at = None if job.lacks_to_train else job.recipe().stop_at
    if stop_at is not None:
        printed.append(100 * stop_at)
    values = [each.values["accuracy"] for each in record.seeds if "accuracy" in each.values]
    if not printed:
        return "the paper prints no accuracy of this network on its own test images"
    if not values:
        return "it has no accuracy on its own test images"
    ours = statistics.fmean(values)
    if stop_at is not None and ours < 100 * stop_at - SHORT:
        return f"{ours:.1f} % of its test images are right, and the paper stops at {stop_at:.1%}"
    nearest = min(printed, key=lambda value: abs(value - ours))
    if abs(nearest - ours) <= POINTS:
        return None
    return f"{ours:.1f} % of its test images are right, and {nearest:.1f} % of the paper's"


@cache
def _printed(paper: str) -> dict[str, list[float]]:
    """The accuracies that a paper prints of a network on the test images of its own data set, by
    the key of the job that trains it."""
    found: dict[str, list[float]] = {}
    for claim in claims(paper=paper, kind="accuracy"):
        jobs = plan_of(claim).jobs
        if len(jobs) != 1 or not isinstance(claim.value, int | float):
            continue
        (job,) = jobs
        is_clean = job.split == "test" and job.test == job.fields.get("test_data", job.train)
        # Means of seeds, and not the best of them.
        if is_clean and job.metrics == ("accuracy",) and "best_seed" not in job.at:
            found.setdefault(job.key, []).append(float(claim.value))
    return found
