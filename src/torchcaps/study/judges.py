"""Statements judged by records: for each the systems, the statistic and the test of its row.

`JUDGES`, at the end, is the table: one more statement is one more function and its line there. A
judge gets the records that name its statement, and returns None while they do not hold what the
row asks for. Where a statement speaks of several cells, the verdict shows the cell that decides it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torchcaps.models import MODELS
from torchcaps.study.claim import Claim
from torchcaps.study.intervals import mean_interval
from torchcaps.study.record import Record
from torchcaps.study.verdict import Side, StatementVerdict, in_every_cell, judge_statistic

__all__ = ["JUDGES", "judge_statement"]

Judge = Callable[[Claim, "Evidence"], StatementVerdict | None]
ON_TRAINING = "accuracy@sign/train"


class Evidence:
    """The records about one statement, asked for by what their recipes say."""

    def __init__(self, records: Iterable[Record]):
        # The fullest comes last, and counts.
        self.records = sorted(records, key=lambda r: (r.reduced is None, len(r.seeds), r.made))

    def values(self, statistic: str, model: str, **chosen: Any) -> dict[int, float]:
        """One value a seed of the system that has these fields and options; of several records that
        of the full protocol, then the one of most seeds."""
        found: dict[int, float] = {}
        for record in self.records:
            recipe = record.recipe
            known = {**MODELS[model].options, **recipe, **recipe.get("options", {})}
            wanted = {"model": model, **chosen}
            if any(known.get(name) != value for name, value in wanted.items()):
                continue
            values = {s.seed: s.values[statistic] for s in record.seeds if statistic in s.values}
            found = values or found
        return found


def judge_statement(claim: Claim, records: Iterable[Record]) -> StatementVerdict | None:
    """The verdict on a statement; None where no judge is written for it, or records are missing."""
    judge = JUDGES.get(claim.id)
    return None if judge is None else judge(claim, Evidence(records))


def _sign_not_learnable(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Exactly one half of the symmetric set, in every seed of both networks; what is shown is the
    difference to it, in points."""
    cells = [
        evidence.values(ON_TRAINING, "peer_sign_dynamic", bias="none"),
        evidence.values(ON_TRAINING, "peer_sign_em", bias=False),
    ]
    if not all(cells):
        return None
    differences = [value - 50 for cell in cells for value in cell.values()]
    ours = mean_interval(differences)
    if any(differences):
        return StatementVerdict("fails", ours, "within", 0.0)
    enough = min(map(len, cells)) >= claim.conditions["n_seeds_min"]
    return StatementVerdict("holds" if enough else "undecided", ours, "within", 0.0)


def _sign_learnable_with_bias(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    cells = [
        evidence.values(ON_TRAINING, "peer_sign_dynamic", bias="added"),
        evidence.values(ON_TRAINING, "peer_sign_em", bias=True),
    ]
    return _every_cell(claim, cells, side="greater", threshold=claim.conditions["threshold"])


def _bias_enables_depth(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    networks: list[dict[str, Any]] = [
        *({"model": "peer_deep_dynamic", "n_layers": n, "bias": "added"} for n in range(2, 6)),
        *({"model": "peer_deep_em", "n_layers": n, "bias": True} for n in range(5, 10)),
    ]
    cells = [
        evidence.values("accuracy", data=data, **network)
        for data in ("mnist", "fashion-mnist")
        for network in networks
    ]
    return _every_cell(claim, cells, side="greater", threshold=claim.conditions["threshold"])


def _every_cell(
    claim: Claim, cells: Sequence[Mapping[int, float]], *, side: Side, threshold: float
) -> StatementVerdict | None:
    """Holds where every cell lies on its side, and fails where one lies on the other, by an
    interval of Bonferroni; the verdict shows the cell that is nearest to failing."""
    if not all(cells):
        return None
    least: int = claim.conditions["n_seeds_min"]

    def judged(cell: Mapping[int, float], count: int) -> StatementVerdict:
        values = list(cell.values())
        return judge_statistic(
            values, side=side, threshold=threshold, n_seeds_min=least, cells=count
        )

    alone = [judged(cell, 1) for cell in cells]
    together = [judged(cell, len(cells)) for cell in cells]
    fails = any(each.word == "fails" for each in together)
    # By itself each must hold; only failing is corrected for the number of cells.
    word = "fails" if fails else in_every_cell(_not_failing(each) for each in alone)
    worst = min(alone, key=lambda each: each.ours.mean if side == "greater" else -each.ours.mean)
    return StatementVerdict(word, worst.ours, side, threshold)


def _not_failing(verdict: StatementVerdict) -> Any:
    return "undecided" if verdict.word == "fails" else verdict.word


JUDGES: Mapping[str, Judge] = MappingProxyType(
    {
        "peer2022-q-sign-not-learnable": _sign_not_learnable,
        "peer2022-q-sign-learnable-with-bias": _sign_learnable_with_bias,
        "peer2022-q-bias-enables-depth": _bias_enables_depth,
    }
)
