"""How the rows of each paper become jobs: rules over the names of its tables."""

from collections.abc import Callable
from functools import cache

from torchcaps_claims.claim import Claim
from torchcaps_claims.plan import Plan
from torchcaps_claims.plans import gu, mitterreiter, peer, renzulli, tsai

__all__ = ["plan_of"]

RULES: dict[str, Callable[[Claim], Plan]] = {
    "gu2021": gu.plan,
    "mitterreiter2023": mitterreiter.plan,
    "peer2022": peer.plan,
    "renzulli2025": renzulli.plan,
    "tsai2020": tsai.plan,
}


@cache
def plan_of(claim: Claim) -> Plan:
    """What has to be trained and measured for a claim, or one word why nothing is.

    >>> plan_of(find_claim("gu2021-t4-routing-dr-test")).jobs[0].model
    'gu_capsnet'
    """
    return RULES[claim.paper](claim)
