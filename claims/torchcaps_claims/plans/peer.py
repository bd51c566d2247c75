"""The rows of [peer2022]: what is trained for each, or why nothing is."""

from dataclasses import replace

from torchcaps_claims.claim import Claim
from torchcaps_claims.plan import Plan, runs
from torchcaps_claims.plans.rows import plan_row
from torchcaps_claims.sets import sets_in
from torchcaps_claims.setups import SETUPS

# The paper does not say how many runs stand behind a number.
SEEDS = 5
DYNAMIC, EM = "peer_deep_dynamic", "peer_deep_em"
SIGN_DYNAMIC, SIGN_EM = "peer_sign_dynamic", "peer_sign_em"
SIGN_OPEN = (
    "λ of the margin loss (1), iterations (3), hidden capsules (20), weights at the start and the "
    "rate (Adam, 0.0001); all but the iterations are from one version of public code"
)


def plan(claim: Claim) -> Plan:
    """What becomes of a row of this paper."""
    planned = plan_row(claim, adapt=_adapt)
    if planned is not None:
        is_of_signs = any(job.train == "sign" for job in planned.jobs)
        return replace(planned, left_open=SIGN_OPEN) if is_of_signs else planned
    if claim.id == "peer2022-text-em-nobias-start":
        system, metric, data = f"{EM} n_layers=5", "onset", ("mnist",)
        return runs(
            claim, SETUPS["peer-depth-em"].jobs(system, metrics=metric, seeds=SEEDS, data=data)
        )
    return _accuracy(claim)


def _accuracy(claim: Claim) -> Plan:
    """A cell of Tables 1 to 3."""
    conditions = claim.conditions
    is_em = conditions["routing"].startswith("EM")
    if is_em:
        bias = "true" if conditions["bias"] else "false"
    else:
        bias = "added" if conditions["bias"] else "none"
    if claim.where == "Table 1":
        model = SIGN_EM if is_em else SIGN_DYNAMIC
        jobs = SETUPS["peer-sign-em" if is_em else "peer-sign"].jobs(
            f"{model} bias={bias}", metrics="accuracy", seeds=SEEDS, data=("sign",), split="train"
        )
        return runs(claim, jobs, left_open=SIGN_OPEN)
    assert claim.dataset is not None
    jobs = SETUPS["peer-depth-em" if is_em else "peer-depth"].jobs(
        f"{EM if is_em else DYNAMIC} n_layers={conditions['layers']} bias={bias}",
        metrics="accuracy",
        seeds=SEEDS,
        data=sets_in(claim.dataset),
    )
    return runs(claim, jobs)


def _adapt(setup: str, system: str, data: str) -> tuple[str, str] | None:
    """Sign networks on signs, deep ones on pictures; EM networks by a setup of their own."""
    is_sign = system.startswith("peer_sign")
    if not is_sign == (data == "sign") == (setup == "peer-sign"):
        return None
    return (f"{setup}-em" if system.startswith((EM, SIGN_EM)) else setup), system
