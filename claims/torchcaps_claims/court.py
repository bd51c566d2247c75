"""What torchcaps finds of this package by its entry point: plans, checks and looks.

Loading it registers the looks and the counted costs of planned networks.
"""

from collections.abc import Sequence

from torchcaps_claims import cost, looks
from torchcaps_claims.claim import claims, find_claim
from torchcaps_claims.of_claims import check_planned, study_of, study_of_claims
from torchcaps_claims.outcome import outcome_of
from torchcaps_claims.sizes import published_sizes

__all__ = [
    "check_ids",
    "check_planned",
    "claims",
    "cost",
    "looks",
    "outcome_of",
    "published_sizes",
    "study_of",
    "study_of_claims",
]


def check_ids(about: Sequence[str]) -> None:
    """Refuse an id that no claim has."""
    for each in about:
        find_claim(each)
