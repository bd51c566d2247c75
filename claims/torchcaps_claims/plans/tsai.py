"""The rows of [tsai2020]: what is trained for each, or why nothing is."""

import re

from torchcaps.data.registry import data_set
from torchcaps_claims.claim import Claim
from torchcaps_claims.plan import Plan, no_run, runs
from torchcaps_claims.plans.rows import plan_row
from torchcaps_claims.sets import sets_in
from torchcaps_claims.setups import SETUPS

# The paper does not say how many runs stand behind a number.
SEEDS = 5
ROUTINGS = {
    "Dynamic Routing": "dynamic",
    "EM Routing": "em",
    "Inverted Dot-Product Attention Routing": "inverted",
}
OVERLAID = {
    "f5-dr-vector": "tsai_dmm_vector_dynamic",
    "f5-inv-vector": "tsai_dmm_vector",
    "f5-cnn": "tsai_dmm_cnn",
    "f5-cnn-fc": "tsai_dmm_cnn_fcpool",
    "f5-inv-matrix": "tsai_dmm_matrix",
}
# Table 1 prints the best of one to five iterations.
CHOICE = "the best of iterations 1 to 5 by validation accuracy"
SWEEP = "iterations=1..5"
# Every routing is trained by the rate of Appendix A.2.
SETUP_OF = {"dynamic": "tsai-cifar-dynamic", "em": "tsai-cifar-em"}

SIZES = "tests/claims/test_sizes.py::test_a_published_size"


def plan(claim: Claim) -> Plan:
    """What becomes of a row of this paper."""
    if claim.configuration is not None:
        return no_run(claim, "unspecified")
    planned = plan_row(claim, adapt=_adapt)
    if planned is not None:
        return planned
    if claim.metric == "output_shape":
        return no_run(claim, "shape", shown_by=SIZES)
    if claim.kind == "params":
        return no_run(claim, "count", shown_by=SIZES)
    if claim.origin == "cited":
        return no_run(claim, "cited")
    return _accuracy(claim)


def _accuracy(claim: Claim) -> Plan:
    """A cell of Table 1, or a number of Fig. 5."""
    assert claim.dataset is not None
    (data,) = sets_in(claim.dataset)
    name = claim.id.partition("-")[2]
    if name in OVERLAID:
        setup, system, choice = "tsai-dmm", OVERLAID[name], None
    elif claim.system in ROUTINGS:
        routing, backbone = ROUTINGS[claim.system], claim.conditions["backbone"].lower()
        setup = SETUP_OF.get(routing, "tsai-cifar")
        n_classes, choice = data_set(data).n_classes, CHOICE
        system = f"tsai_{routing}_{backbone}_c{n_classes} {SWEEP}"
    else:
        setup, choice = "tsai-cifar", None
        system = {
            ("Baseline CNN", "cifar10"): "tsai_cnn_c10",
            ("Baseline CNN", "cifar100"): "tsai_cnn_c100",
            ("ResNet-18", "cifar10"): "resnet18",
            ("ResNet-18", "cifar100"): "tsai_resnet18_c100",
        }[claim.system or "", data]
    jobs = SETUPS[setup].jobs(system, metrics="accuracy", seeds=SEEDS, data=(data,))
    return runs(claim, jobs, choice=choice)


def _adapt(setup: str, system: str, data: str) -> tuple[str, str] | None:
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
