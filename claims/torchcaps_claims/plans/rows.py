"""Rows of all papers that a file beside this module plans, PAPER.toml: statements, with the systems
that each compares on the data and protocols it names, and rows for which nothing is trained."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from torchcaps.errors import TorchcapsError
from torchcaps_claims.claim import Claim
from torchcaps_claims.job import Job, Split
from torchcaps_claims.plan import Plan
from torchcaps_claims.sets import sets_in
from torchcaps_claims.setups import SETUPS, setups_in
from torchcaps_claims.texts import read_texts

# (setup, system, data) as they belong together, or None where they do not.
Adapt = Callable[[str, str, str], tuple[str, str] | None]


@cache
def rows_of(paper: str) -> Mapping[str, Mapping[str, Any]]:
    """The rows of the file of a paper, by what follows the name of the paper in their ids; of
    "systems" the names that the papers give to systems, by paper."""
    return read_texts(f"plans/{paper}")


def plan_row(claim: Claim, adapt: Adapt) -> Plan | None:
    """What its file says of a claim; None of a number that is not there."""
    row = rows_of(claim.paper).get(claim.id.partition("-")[2])
    if row is not None and "word" in row:
        return Plan(claim, word=row["word"], shown_by=row.get("shown_by"))
    if not claim.states:
        return None
    if row is None:
        raise TorchcapsError(
            f"{claim.id} is a statement without systems; name them in plans/{claim.paper}.toml, or "
            f"say there in one word why nothing is trained for it."
        )
    return _plan_statement(claim, row, adapt)


def _plan_statement(claim: Claim, row: Mapping[str, Any], adapt: Adapt) -> Plan:
    """The jobs of a statement: every system on every data set under every protocol it names."""
    conditions = claim.conditions
    systems = [row["systems"]] if isinstance(row["systems"], str) else row["systems"]
    jobs: list[Job] = []
    for setup in setups_in(conditions["protocol"]):
        for test in row.get("data", sets_in(conditions["dataset"])):
            for system in systems:
                if (found := adapt(setup, system, test)) is None:
                    continue
                for split in _splits(conditions["statistic"], row["metrics"]):
                    jobs += SETUPS[found[0]].jobs(
                        found[1],
                        metrics=_metrics_of(setup, row["metrics"]),
                        seeds=conditions["n_seeds_min"],
                        data=(test,),
                        split=split,
                    )
    return Plan(claim, tuple(jobs))


def _metrics_of(setup: str, metrics: str) -> str:
    """Where a statement has several protocols, compactness is read off by its own alone."""
    if metrics != "accuracy compactness":
        return metrics
    return "compactness" if setup == "gu-compact" else "accuracy"


def _splits(statistic: str, metrics: str) -> tuple[Split, ...]:
    """Whose accuracy a statement is about: that of test images, of training images, or both."""
    if "accuracy" not in metrics.split() or "training accuracy" not in statistic:
        return ("test",)
    return ("train",) if statistic == "training accuracy" else ("test", "train")
