"""What becomes of a claim: the jobs that measure it, or one word why nothing is trained for it."""

from dataclasses import dataclass
from typing import Any

from torchcaps.errors import TorchcapsError
from torchcaps_claims.claim import Claim
from torchcaps_claims.job import Job
from torchcaps_claims.texts import read_texts

# Where a claim stands before any record: a test of this repository shows it, nothing has been run
# for it yet, others have measured it, or nothing that could be run decides it.
STATUSES = ("tested", "not run", "cited", "not testable")

# Why nothing is trained for a claim, and what the words mean.
WORDS = read_texts("words")


@dataclass(frozen=True)
class Plan:
    """Either `jobs`, or a `word` and, where a test of this repository shows the claim, the test."""

    claim: Claim
    jobs: tuple[Job, ...] = ()
    word: str | None = None
    shown_by: str | None = None  # tests/file.py::test
    # How one number is made of several jobs, where a claim is a number.
    choice: str | None = None
    # What the paper leaves open and was chosen here, beside what its row says of that.
    left_open: str | None = None

    def __post_init__(self) -> None:
        if bool(self.jobs) == (self.word is not None):
            raise TorchcapsError(
                f"{self.claim.id} must have jobs, or a word why nothing is trained for it; it has "
                f"{'both' if self.jobs else 'neither'}."
            )

    @property
    def status(self) -> str:
        """Where it stands before any record."""
        if self.word == "cited":
            return "cited"
        if self.shown_by is not None:
            return "tested"
        return (
            "not testable"
            if self.word in ("setting", "survey", "unspecified", "unstated")
            else "not run"
        )

    def numbers(self) -> dict[str, Any]:
        """Everything but the claim, as JSON has it."""
        return {
            "status": self.status,
            "word": self.word,
            "shown_by": self.shown_by,
            "choice": self.choice,
            "left_open": self.left_open,
            "jobs": [job.numbers() for job in self.jobs],
        }
