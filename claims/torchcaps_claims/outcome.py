"""What the records of a study say, once it was run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps.study.record import Record, read_record
from torchcaps.study.system import Study
from torchcaps_claims.claim import find_claim
from torchcaps_claims.result import Result, result_of


@dataclass(frozen=True)
class Outcome:
    """The records of a study, and its claims in their light."""

    study: Study
    records: dict[str, Record]
    results: tuple[Result, ...]

    def numbers(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {
            "study": self.study.name,
            "records": list(self.records),
            "drafts": sum(record.is_draft for record in self.records.values()),
            "claims": [
                {
                    "id": each.claim.id,
                    "status": each.status,
                    "verdict": None if each.verdict is None else each.verdict.text(),
                }
                for each in self.results
            ],
            "cannot_be_run": [
                {"row": each.label, "needs": list(each.needs)} for each in self.study.waiting
            ],
        }

    def text(self) -> str:
        """One line a claim, then what the lines rest on."""
        lines = [
            f"{each.claim.id}  {each.status if each.verdict is None else each.verdict.text()}"
            for each in self.results
        ]
        drafts = sum(record.is_draft for record in self.records.values())
        lines.append(f"{len(self.records)} of {len(self.study.systems)} systems have a record")
        if drafts:
            lines.append(
                f"{drafts} of them are drafts, which no table shows: the code had changes, or was "
                f"no commit"
            )
        if self.study.waiting:
            needs = {need for each in self.study.waiting for need in each.needs}
            number = len(self.study.waiting)
            rows = "1 row cannot be run yet; it needs"
            if number > 1:
                rows = f"{number} rows cannot be run yet; they need"
            lines.append(f"{rows} {', '.join(sorted(needs))}")
        return "\n".join(lines)


def outcome_of(study: Study, paths: Sequence[Path]) -> Outcome:
    """What the records at some paths say about the claims of a study, drafts included."""
    records = {path.stem: read_record(path) for path in paths}
    ids = dict.fromkeys(name for system in study.systems for name in system.claims)
    return Outcome(study, records, tuple(result_of(find_claim(name), records) for name in ids))
