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
    "λ of the margin loss (1), iterations (3), hidden capsules (20), the first weights and biases, "
    "and the rate (Adam, {rate:g}); {of_code} of the first version of the code that it names"
)
# Those of Table 1, and others, whose rate is that of its deep networks.
ALL_OF_IT, BUT_THE_RATE = "these are", "all but the rate and the first biases are"


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
    of_signs = next((job for job in plan.jobs if job.train == "sign"), None)
    if of_signs is None:
        return plan
    of_code = ALL_OF_IT if of_signs.options.get("as_code") else BUT_THE_RATE
    rate = of_signs.recipe().learning_rate
    return replace(plan, left_open=SIGN_OPEN.format(rate=rate, of_code=of_code))


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
