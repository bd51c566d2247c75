"""What an examination finds: a verdict, and a sentence that says why and what to do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

# "look": it may be meant, somebody should look. "broken": it will not learn, or not run.
Verdict = Literal["fine", "look", "broken"]


@dataclass(frozen=True)
class Diagnosis:
    check: str
    verdict: Verdict
    text: str
    # Finite numbers, lists and words; null where there is none.
    numbers: Mapping[str, Any] = field(default_factory=dict)


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
