"""A table of a paper as the commands that run it: every cell, what it needs, and what it costs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torchcaps.study.claim import Claim, claims_of_table
from torchcaps.study.cost import RATE, Cost, cost_of
from torchcaps.study.job import Job
from torchcaps.study.papers import plan_of
from torchcaps.study.plan import WORDS, Plan

__all__ = ["Table", "table"]


@dataclass(frozen=True)
class Table:
    """The cells of one table with their plans. Nothing is run."""

    paper: str
    number: int
    reduced: bool
    root: str
    rows: tuple[tuple[Claim, Plan], ...]

    def jobs(self, plan: Plan) -> tuple[Job, ...]:
        """The jobs of a cell, in the form that was asked for."""
        return tuple(job.smaller() if self.reduced else job for job in plan.jobs)

    def trainings(self) -> dict[str, Job]:
        """The jobs that train something, each once: cells share networks."""
        every = (job for _, plan in self.rows for job in self.jobs(plan))
        return {job.key: job for job in every}

    def cost(self) -> Cost:
        """Of all that can be trained today."""
        costs = [cost_of(job) for job in self.trainings().values()]
        return sum((cost for cost in costs if cost is not None), start=Cost(0, 0.0))

    def numbers(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        waiting = sum(bool(job.lacks_to_train) for job in self.trainings().values())
        return {
            "paper": self.paper,
            "table": self.number,
            "reduced": self.reduced,
            "rows": [self._row(claim, plan) for claim, plan in self.rows],
            "trainings": len(self.trainings()),
            "trainings_that_need_something": waiting,
            "cost": self.cost().numbers(),
            "flops_a_second": RATE,
        }

    def text(self) -> str:
        """The same in lines: a cell, then what runs it."""
        return "\n".join(self._lines())

    def _row(self, claim: Claim, plan: Plan) -> dict[str, Any]:
        jobs = []
        for job in self.jobs(plan):
            cost = cost_of(job)
            jobs.append(
                job.numbers()
                | {
                    "commands": [
                        list(job.commands(seed=s, root=self.root)) for s in range(job.seeds)
                    ],
                    "cost": None if cost is None else cost.numbers(),
                }
            )
        return {
            "id": claim.id,
            "system": claim.system,
            "metric": claim.metric,
            "value": claim.value,
            "std": claim.std,
            "unit": claim.unit,
            "statement": claim.statement,
            **plan.numbers(),
            "jobs": jobs,
        }

    def _lines(self) -> Iterator[str]:
        for claim, plan in self.rows:
            yield _published(claim)
            if plan.word is not None:
                yield f"    # {plan.word}: {WORDS[plan.word]}"
                if plan.shown_by is not None:
                    yield f"    python -m pytest {plan.shown_by}"
            if plan.choice is not None:
                yield f"    # {plan.choice}"
            if plan.lacks:
                yield f"    # needs {', '.join(plan.lacks)}"
            for job in self.jobs(plan):
                yield from self._job_lines(job)
        yield ""
        yield self._total()

    def _job_lines(self, job: Job) -> Iterator[str]:
        for command in job.commands(root=self.root):
            yield f"    {command}"
        cost = cost_of(job)
        told = "cost unknown" if cost is None else cost.text()
        yield f"    # {job.seeds} seeds, 0 to {job.seeds - 1}: {told}"
        if job.needs:
            yield f"    # needs {', '.join(job.needs)}"
        for departure in job.departures:
            yield f"    # departs: {departure}"

    def _total(self) -> str:
        jobs = self.trainings().values()
        if not jobs:
            return f"# {len(self.rows)} rows, nothing to train."
        waiting = sum(bool(job.lacks_to_train) for job in jobs)
        runs = sum(job.seeds for job in jobs)
        told = f"# {len(self.rows)} rows, {len(jobs)} networks, {runs} runs with all seeds"
        rate = f"{RATE / 1e9:.0f} GFLOP a second"
        if waiting == len(jobs):
            return f"{told}; all need something that is not there yet."
        missing = f", {waiting} networks that need something left out" if waiting else ""
        return f"{told}: {self.cost().text()} at {rate}{missing}."


def table(paper: str, number: int, *, reduced: bool = False, root: str = "data") -> Table:
    """A table of a paper, planned.

    Arguments:
        paper: its key, such as "gu2021".
        number: the number of the table.
        reduced: whether the smaller form of each cell is planned.
        root: the folder of the data sets in the commands.

    >>> print(table("gu2021", 4).text())
    """
    rows = tuple((claim, plan_of(claim)) for claim in claims_of_table(paper, number))
    return Table(paper, number, reduced, root, rows)


def _published(claim: Claim) -> str:
    if claim.states:
        return f"{claim.id}  {claim.statement}"
    spread = "" if claim.std is None else f" ± {claim.std:g}"
    unit = {None: "", "%": " %"}.get(claim.unit, f" {claim.unit}")
    return f"{claim.id}  {claim.metric} {claim.value}{spread}{unit}"
