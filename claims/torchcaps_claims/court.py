"""What torchcaps finds of this package by its entry point: plans, checks and looks.

Loading it registers the looks and the counted costs of planned networks.
"""

from torchcaps_claims import cost as cost
from torchcaps_claims import looks as looks
from torchcaps_claims.claim import claims as claims
from torchcaps_claims.claim import find_claim as find_claim
from torchcaps_claims.of_claims import check_planned as check_planned
from torchcaps_claims.of_claims import study_of as study_of
from torchcaps_claims.of_claims import study_of_claims as study_of_claims
from torchcaps_claims.outcome import outcome_of as outcome_of
from torchcaps_claims.sizes import published_sizes as published_sizes
