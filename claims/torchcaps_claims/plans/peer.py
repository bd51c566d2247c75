"""The rows of [peer2022]: what is trained for each, or why nothing is."""

from torchcaps_claims.claim import Claim
from torchcaps_claims.plan import Plan
from torchcaps_claims.sets import sets_in
from torchcaps_claims.setups import SETUPS

# The paper does not say how many runs stand behind a number.
SEEDS = 5
DYNAMIC, EM = "peer_deep_dynamic", "peer_deep_em"
SIGN_DYNAMIC, SIGN_EM = "peer_sign_dynamic", "peer_sign_em"
TABLE_1 = "peer-table-1"
# Whether it is EM, and whether there is one.
BIAS = (("none", "added"), ("false", "true"))


def measured(claim: Claim) -> Plan:
    """A cell of Tables 1 to 3, or the one number of the text."""
    if claim.id == "peer2022-text-em-nobias-start":
        jobs = SETUPS["peer-depth-em"].jobs(
            f"{EM} n_layers=5", metrics="onset", seeds=SEEDS, data=("mnist",)
        )
        return Plan(claim, jobs)
    conditions = claim.conditions
    is_em = conditions["routing"].startswith("EM")
    bias = BIAS[is_em][conditions["bias"]]
    data: tuple[str, ...] = ("sign",)
    if claim.where == "Table 1":
        setup = TABLE_1
        model = (
            f"{SIGN_EM} unit_poses=code as_code=true" if is_em else f"{SIGN_DYNAMIC} as_code=true"
        )
    else:
        assert claim.dataset is not None
        setup, data = "peer-depth", sets_in(claim.dataset)
        model = f"{EM if is_em else DYNAMIC} n_layers={conditions['layers']}"
    jobs = SETUPS[f"{setup}-em" if is_em else setup].jobs(
        f"{model} bias={bias}",
        metrics="accuracy",
        seeds=SEEDS,
        data=data,
        split="train" if setup == TABLE_1 else "test",
    )
    return Plan(claim, jobs)


def adapt(setup: str, system: str, data: str) -> tuple[str, str] | None:
    """Sign networks on signs, deep ones on pictures; EM networks by a setup of their own."""
    is_sign = system.startswith("peer_sign")
    if not is_sign == (data == "sign") == (setup in ("peer-sign", TABLE_1)):
        return None
    return (f"{setup}-em" if system.startswith((EM, SIGN_EM)) else setup), system
