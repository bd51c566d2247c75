"""Statements of all papers: the systems that one compares, on the data and protocols it names."""

from collections.abc import Callable, Mapping

from torchcaps.errors import TorchcapsError
from torchcaps_claims.claim import Claim
from torchcaps_claims.job import Job, Split
from torchcaps_claims.plan import Plan, runs
from torchcaps_claims.sets import sets_in
from torchcaps_claims.setups import SETUPS, setups_in

__all__ = ["Adapt", "Statements", "plan_statement"]

# What follows the name of its paper in the id of a statement: its systems, as `cells` reads them,
# those that it is compared with among them; its statistics; its data sets, where the claim's own
# words are not them.
Statements = Mapping[str, tuple[str, str] | tuple[str, str, tuple[str, ...]]]
# (setup, system, data) as they belong together, or None where they do not.
Adapt = Callable[[str, str, str], tuple[str, str] | None]


def plan_statement(
    claim: Claim, name: str, statements: Statements, *, adapt: Adapt | None = None
) -> Plan:
    """The jobs of a statement: every system on every data set under every protocol it names."""
    if name not in statements:
        raise TorchcapsError(
            f"{claim.id} is a statement without systems; name them in claims/, or say "
            f"in one word why nothing is trained for it."
        )
    systems, metrics, *chosen = statements[name]
    conditions = claim.conditions
    data = chosen[0] if chosen else sets_in(conditions["dataset"])
    jobs: list[Job] = []
    for setup in setups_in(conditions["protocol"]):
        for test in data:
            for system in systems.split(";"):
                found = adapt(setup, system.strip(), test) if adapt else (setup, system)
                if found is None:
                    continue
                for split in _splits(conditions["statistic"], metrics):
                    jobs += SETUPS[found[0]].jobs(
                        found[1],
                        metrics=_metrics_of(setup, metrics),
                        seeds=conditions["n_seeds_min"],
                        data=(test,),
                        split=split,
                    )
    return runs(claim, tuple(jobs))


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
