"""The rows of [tsai2020]: what is trained for each, or why nothing is."""

import re

from torchcaps.data.registry import data_set
from torchcaps_claims.claim import Claim
from torchcaps_claims.plan import Plan
from torchcaps_claims.plans.rows import rows_of
from torchcaps_claims.sets import sets_in
from torchcaps_claims.setups import SETUPS

# The paper does not say how many runs stand behind a number.
SEEDS = 5
NAMES = rows_of("systems")["tsai2020"]
# Table 1 prints the best of one to five iterations.
CHOICE = "the best of iterations 1 to 5 by validation accuracy"
SWEEP = "iterations=1..5"
# Every routing is trained by the rate of Appendix A.2.
SETUP_OF = {"dynamic": "tsai-cifar-dynamic", "em": "tsai-cifar-em"}


def measured(claim: Claim) -> Plan:
    """A cell of Table 1, or a number of Fig. 5."""
    assert claim.dataset is not None
    (data,) = sets_in(claim.dataset)
    name = claim.id.partition("-")[2]
    if name in NAMES["overlaid"]:
        setup, system, choice = "tsai-dmm", NAMES["overlaid"][name], None
    elif claim.system in NAMES["routings"]:
        routing, backbone = NAMES["routings"][claim.system], claim.conditions["backbone"].lower()
        setup = SETUP_OF.get(routing, "tsai-cifar")
        n_classes, choice = data_set(data).n_classes, CHOICE
        system = f"tsai_{routing}_{backbone}_c{n_classes} {SWEEP}"
    else:
        setup, system, choice = "tsai-cifar", NAMES["others"][claim.system][data], None
    jobs = SETUPS[setup].jobs(system, metrics="accuracy", seeds=SEEDS, data=(data,))
    return Plan(claim, jobs, choice=choice)


def adapt(setup: str, system: str, data: str) -> tuple[str, str] | None:
    """Networks of ten classes for CIFAR-10, of a hundred for CIFAR-100, those of DiverseMultiMNIST
    for it; dynamic and EM routing by their own optimisers."""
    overlaid = system.startswith("tsai_dmm")
    if not overlaid == (data == "diverse-multi-mnist") == (setup == "tsai-dmm"):
        return None
    if overlaid:
        return setup, system
    n_classes = data_set(data).n_classes
    system = system.replace("*", f"c{n_classes}")
    is_c100 = re.match(r"\w+_c100\b", system) is not None
    if is_c100 != (n_classes == 100):
        return None
    routing = system.split("_")[1] if "_" in system else ""
    return SETUP_OF.get(routing, setup), system
