"""A table of a paper as the commands that run it: every cell, and what it costs.

So are a single claim and all claims of a paper. This is the recipe of a claim: it is made of the
plans in `papers/` whenever it is asked for, and kept in no file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchcaps.errors import TorchcapsError
from torchcaps.report.template import template
from torchcaps.study.cost import RATE
from torchcaps_claims.claim import Claim, claims_about, claims_of_table
from torchcaps_claims.cost import Cost, cost_of
from torchcaps_claims.job import Job
from torchcaps_claims.plan import WORDS, Plan
from torchcaps_claims.plans import plan_of
from torchcaps_claims.statistics import STATISTICS
from torchcaps_claims.verdict import tolerance_of

# How a statement compares its statistic with its threshold.
DIRECTIONS = {"equal": "equal to", "greater": "greater than", "less": "less than"}


@dataclass(frozen=True)
class Table:
    """The cells of one table with their plans. Nothing is run."""

    paper: str
    number: int | None
    reduced: bool
    root: str
    rows: tuple[tuple[Claim, Plan], ...]
    # FLOPs a second; None where nobody said.
    gpu_rate: float | None = None

    def jobs(self, plan: Plan) -> tuple[Job, ...]:
        """The jobs of a cell, in the form that was asked for."""
        return tuple(job.smaller() if self.reduced else job for job in plan.jobs)

    def trainings(self) -> dict[str, Job]:
        """The jobs that train something, each once: cells share networks. Of those that do the one
        of most seeds counts."""
        found: dict[str, Job] = {}
        for job in (job for _, plan in self.rows for job in self.jobs(plan)):
            found[job.key] = max(job, found.get(job.key, job), key=lambda each: each.seeds)
        return found

    def cost(self) -> Cost:
        """Add up the cost of all trainings."""
        return sum(map(cost_of, self.trainings().values()), start=Cost(0, 0.0))

    def numbers(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {
            "paper": self.paper,
            "table": self.number,
            "reduced": self.reduced,
            "rows": [self._row(claim, plan) for claim, plan in self.rows],
            "trainings": len(self.trainings()),
            "cost": self._cost_numbers(self.cost()),
            "flops_a_second": RATE,
            "flops_a_second_on_one_gpu": self.gpu_rate,
        }

    def text(self) -> str:
        """Write the table in lines: a cell, then what runs it."""
        jobs = self.trainings().values()
        return template("table.txt", "torchcaps_claims").render(
            table=self,
            words=WORDS,
            jobs=jobs,
            runs=sum(job.seeds for job in jobs),
            rate=RATE,
            judged_by=judged_by,
            published=published,
            departures_of=departures_of,
            reads=_reads,
            cost_of=cost_of,
        )

    def _row(self, claim: Claim, plan: Plan) -> dict[str, Any]:
        said = ("id", "system", "metric", "value", "std", "unit", "statement")
        jobs = [
            {
                **job.numbers(),
                "commands": [list(job.commands(seed=s, root=self.root)) for s in range(job.seeds)],
                "all_departures": list(departures_of(job)),
                "cost": self._cost_numbers(cost_of(job)),
            }
            for job in self.jobs(plan)
        ]
        fields = {name: getattr(claim, name) for name in said}
        return {**fields, "judged_by": judged_by(claim), **plan.numbers(), "jobs": jobs}

    def _cost_numbers(self, cost: Cost) -> dict[str, Any]:
        hours = None if self.gpu_rate is None else cost.hours_at(self.gpu_rate)
        return {**cost.numbers(), "hours_on_one_gpu": hours}


def table(
    what: str,
    number: int | None = None,
    *,
    reduced: bool = False,
    root: str = "data",
    gpu_rate: float | None = None,
) -> Table:
    """A table of a paper, planned; or all claims of a paper, or one claim.

    Arguments:
        what: a key of a paper, such as "gu2021", or the id of a claim.
        number: the number of a table of the paper; None: all of its claims.
        reduced: whether the smaller form of each cell is planned.
        root: the folder of the data sets in the commands.
        gpu_rate: the FLOPs a second of a GPU, for the hours on it.

    >>> print(table("gu2021", 4).text())
    """
    if gpu_rate is not None and not gpu_rate > 0:
        raise TorchcapsError(f"a GPU makes more than 0 FLOPs a second, but came with {gpu_rate:g}.")
    chosen = claims_about(what) if number is None else claims_of_table(what, number)
    rows = tuple((claim, plan_of(claim)) for claim in chosen)
    return Table(chosen[0].paper, number, reduced, root, rows, gpu_rate)


def departures_of(job: Job) -> tuple[str, ...]:
    """Where a job leaves its paper, and its recipe the protocol."""
    return tuple(dict.fromkeys((*job.departures, *job.recipe().departures())))


def _reads(job: Job) -> str:
    """The statistics, and of which images."""
    said = (
        f"{name} ({STATISTICS[name].says})" if name in STATISTICS else name for name in job.metrics
    )
    at = "".join(f", {name} {value}" for name, value in job.at.items())
    levels = f", couplings on {' and '.join(map(str, job.levels))} levels" if job.levels else ""
    return f"{', '.join(said)}, of {job.test}/{job.split}{at}{levels}"


def judged_by(claim: Claim) -> str | None:
    """The test whose outcome is the verdict, in words."""
    if claim.states:
        rule = claim.conditions
        limit = rule["threshold"]
        if isinstance(limit, Mapping):
            limit = ", ".join(f"{name} {value}" for name, value in limit.items())
        direction = DIRECTIONS.get(rule["direction"], rule["direction"].replace("_", " ") + ",")
        return f"{rule['statistic']}: {direction} {limit}; {rule['n_seeds_min']} seeds or more"
    if not isinstance(claim.value, int | float):
        return None
    return (
        f"the mean over seeds with its 95 % t-interval, within {claim.value:g} ± "
        f"{tolerance_of(claim):.3g}"
    )


def published(claim: Claim) -> str:
    """What a paper prints, in words."""
    if claim.states:
        return "the statement"
    spread = "" if claim.std is None else f" ± {claim.std:g}"
    unit = "" if claim.unit is None else f" {claim.unit}"
    # As many decimals as the paper prints, where a number in JSON has lost some.
    value = claim.value if claim.decimals is None else f"{claim.value:.{claim.decimals}f}"
    return f"{claim.metric} {value}{spread}{unit}"
