"""The rows of [gu2021]: what is trained for each, or why nothing is."""

from collections.abc import Mapping

from torchcaps_claims.claim import Claim
from torchcaps_claims.plan import Plan
from torchcaps_claims.plans.rows import rows_of
from torchcaps_claims.setups import SETUPS

SEEDS = 5  # the paper's
NAMES = rows_of("systems")["gu2021"]
SYSTEMS: Mapping[str, str] = NAMES["systems"]
# Networks without class vectors.
VECTORLESS = ("convnet_avg", "convnet_fc", "gu_convnet_fc_lk")
# The paper leaves the number of training images of these two open; it is not that of Table 4.
OPEN_SIZE = "multi-mnist-1000"

# Two cells of Table 3 are those of Table 1, whose network stopped at 99.22 %.
STOPPED = ("gu2021-t3-convnet-avg-k9-std", "gu2021-t3-convnet-avg-k9-aff")


def measured(claim: Claim) -> Plan:
    """A number of a trained network."""
    setup, system, data = _cell_of(claim)
    is_compactness = claim.metric == "semantic compactness score"
    trained_on = (claim.test_set or "").endswith("train")
    jobs = SETUPS[setup].jobs(
        system,
        metrics="compactness" if is_compactness else "accuracy",
        seeds=SEEDS,
        data=(data,),
        split="train" if trained_on else "test",
        at={"factor": claim.conditions["factor"]} if is_compactness else None,
    )
    return Plan(claim, jobs)


def _cell_of(claim: Claim) -> tuple[str, str, str]:
    """Setup, system and the images that are looked at, of a number."""
    affine = "affnist" if claim.dataset == "AffNIST" else "expanded-mnist"
    assert claim.system is not None
    if claim.where == "Table 1" or claim.id in STOPPED:
        return "gu-earlystop", SYSTEMS[claim.system], affine
    if claim.where == "Table 2":
        return "gu-full", _ablated(claim), affine
    if claim.where == "Table 3":
        return "gu-full", f"{SYSTEMS[claim.system]} kernel={claim.conditions['kernel']}", affine
    if claim.where == "Table 4":
        return "gu-multimnist", _ablated(claim), "multi-mnist-100"
    if claim.where == "Table 5":
        return "gu-compact", SYSTEMS[claim.system], "mnist"
    return "gu-multimnist", SYSTEMS[claim.system], OPEN_SIZE


def _ablated(claim: Claim) -> str:
    """A row of Tables 2 and 4: one factor of the base is varied."""
    row = claim.conditions
    words = [
        NAMES["ablated"][row["routing"]][int(row["shared_transform"])],
        "" if row["squash"] else "primary_squash=none class_squash=none",
        NAMES["drawn"][row["reconstruction"]],
        NAMES["losses"][row["loss"]],
    ]
    return " ".join(filter(None, words))


def adapt(setup: str, system: str, data: str) -> tuple[str, str] | None:
    """Each protocol has the images that it is about. On MultiMNIST the kernels are a study of their
    own, at the size of Table 4. Networks without class vectors have no compactness."""
    several = data.startswith("multi-mnist")
    about = {
        "gu-multimnist": several,
        "gu-compact": data in ("mnist", "fashion-mnist"),
        "gu-earlystop": data == "affnist",
        "gu-full": data == "affnist",
        "gu-toy": data == "toy-2d",
    }
    other_size = several and "kernel=" in system and data != "multi-mnist-100"
    is_vectorless = setup == "gu-compact" and system in VECTORLESS
    return (setup, system) if about[setup] and not other_size and not is_vectorless else None
