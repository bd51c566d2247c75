"""How the rows of each paper become jobs: rules over the names of its tables."""

from dataclasses import replace
from functools import cache

from torchcaps_claims.claim import Claim
from torchcaps_claims.plan import Plan
from torchcaps_claims.plans import gu, mitterreiter, peer, renzulli, tsai
from torchcaps_claims.plans.rows import plan_row

RULES = {
    "gu2021": gu,
    "mitterreiter2023": mitterreiter,
    "peer2022": peer,
    "renzulli2025": renzulli,
    "tsai2020": tsai,
}
SIZES = "tests/claims/test_sizes.py::test_a_published_size"
# Rows that are choices of the paper and no results.
SETTINGS = ("gu2021-setting-", "rem-text-k-")
# What is trained on signs.
SIGN_OPEN = (
    "λ of the margin loss (1), iterations (3), hidden capsules (20), weights at the start and the "
    "rate (Adam, 0.0001); all but the iterations are from one version of public code"
)


@cache
def plan_of(claim: Claim) -> Plan:
    """What has to be trained and measured for a claim, or one word why nothing is.

    >>> plan_of(find_claim("gu2021-t4-routing-dr-test")).jobs[0].model
    'gu_capsnet'
    """
    if claim.configuration is not None:
        return Plan(claim, word="unspecified")
    rules = RULES[claim.paper]
    plan = plan_row(claim, rules.adapt) or _untrained(claim) or rules.measured(claim)
    is_of_signs = any(job.train == "sign" for job in plan.jobs)
    return replace(plan, left_open=SIGN_OPEN) if is_of_signs else plan


def _untrained(claim: Claim) -> Plan | None:
    """The plan of a number for which nothing is trained."""
    if claim.metric == "output_shape":
        return Plan(claim, word="shape", shown_by=SIZES)
    if claim.kind == "params" and not claim.needs_trained:
        return Plan(claim, word="count", shown_by=SIZES)
    if claim.id.startswith(SETTINGS):
        return Plan(claim, word="setting")
    # Gu and Tresp cite numbers of systems that they trained too.
    is_here = claim.paper == "gu2021" and claim.system in gu.SYSTEMS
    return Plan(claim, word="cited") if claim.origin == "cited" and not is_here else None
