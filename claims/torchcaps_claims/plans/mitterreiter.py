"""The rows of [mitterreiter2023]: what is trained for each, or why nothing is."""

from torchcaps_claims.claim import Claim
from torchcaps_claims.plan import Plan, no_run, runs
from torchcaps_claims.plans.plan_statement import Statements, plan_statement
from torchcaps_claims.setups import SETUPS

__all__ = ["plan"]

NET = "mitterreiter_5x16"
MODELS = 10  # a cell of Tables 1 and 2 is the mean over ten networks
GRID = "mitterreiter_grid widths=8,8,8|16,16,16|16,16,16,16|16,16,16,16,16|32,32,32,32|8,8,8,8"
# As many architectures as rows ask for that correlate over them.
TWELVE = f"{GRID} d_pose=4|8"
# Depths of 2 to 8 capsule layers; the classes are the last one and not among the widths.
DEPTHS = "mitterreiter_grid widths=" + "'16'|" + "|".join(",".join(["16"] * n) for n in range(2, 8))
UNIFORM = "routing=uniform"

STATEMENTS: Statements = {
    "q-routing-almost-static": (NET, "dys dyr"),
    "q-last-layer-more-dynamic": (NET, "dyr dys"),
    "q-all-affnist-models-similar": (TWELVE, "dyr"),
    "q-cifar10-worse-dynamics": (NET, "dyr", ("cifar10", "affnist")),
    "q-parse-trees-not-dynamic": (NET, "parse_tree_distance dyr"),
    "q-correlation-decreases": (NET, "activation_correlation"),
    "q-primecaps-not-invariant": (NET, "activation_correlation"),
    "q-different-tree-similar-image": (NET, "parse_tree_distance"),
    "q-primecaps-always-active": (NET, "car car_twice"),
    "q-cas-declines": (NET, "cas"),
    "q-cns-declines": (NET, "cns"),
    "q-dead-increase-with-depth": (NET, "cdr"),
    "q-output-layer-no-dead": (NET, "cds"),
    "q-active-less-than-classes": (NET, "cas"),
    "q-uniform-routing-better": (f"{NET} {UNIFORM}; {NET}", "accuracy"),
    "q-dead-never-revives": (NET, "revivals"),
    "q-mhsa-no-vanishing": (f"{NET}; mhsa_stack", "gradient_norms cdr", ("affnist",)),
    "q-does-not-scale": (
        f"{GRID}; capsnet; convnet_avg",
        "accuracy",
        # ImageNet is beyond what can be run; the statement is judged up to Tiny ImageNet.
        ("mnist", "cifar10", "cifar100", "tiny-imagenet"),
    ),
    "q-rba-causes-deaths": (f"{NET}; {NET} {UNIFORM}", "cdr"),
    "q-deaths-explain-uniform-gain": (
        f"{TWELVE}; {TWELVE} {UNIFORM}; {TWELVE} {UNIFORM} +narrow",
        "cdr accuracy",
    ),
    "q-depth-limited-by-deaths": (f"{DEPTHS}; {DEPTHS} {UNIFORM}", "cdr accuracy"),
    "q-no-dedicated-entity": (f"{NET}; {NET} {UNIFORM}", "entity_selectivity"),
}
THEORY = "tests/theory/test_mitterreiter.py::"
SHOWN = {
    "theorem-1": f"{THEORY}test_theorem_1_gradient_of_the_upper_most_capsules",
    "theorem-1-magnitude-remark": (
        f"{THEORY}test_remark_the_gradient_does_depend_on_the_magnitude"
    ),
    "theorem-2-capsule": f"{THEORY}test_theorem_2_of_every_routing",
    "theorem-2-weight": f"{THEORY}test_theorem_2_of_every_routing",
    "theorem-2-dead": f"{THEORY}test_theorem_2_a_dead_capsule_stays_dead",
    "perfect-routing-std": "tests/analysis/test_dynamics.py::test_perfect_routing_is_one",
    "q-squash-exp-sensitive": f"{THEORY}test_squash_near_zero",
}
COSTS = "tests/claims/test_costs.py::"


def plan(claim: Claim) -> Plan:
    """What becomes of a row of this paper."""
    name = claim.id.partition("-")[2]
    if name in SHOWN:
        return no_run(claim, "theory", shown_by=SHOWN[name])
    if claim.states:
        if name == "q-rba-expensive":
            shown = f"{COSTS}test_routing_costs_more_than_self_attention"
            return no_run(claim, "benchmark", shown_by=shown)
        return plan_statement(claim, name, STATEMENTS)
    if claim.origin == "cited":
        return no_run(claim, "cited")
    if claim.where == "Table 3":
        return no_run(claim, "benchmark", shown_by=f"{COSTS}test_table_3")
    # How many networks they trained; ours, `models.grid_of_121`, are as many by choice.
    if name in ("text-architectures", "text-target-accuracy"):
        return no_run(claim, "setting")
    if name == "text-dead-max":
        return no_run(claim, "unspecified")
    return _measured(claim)


def _measured(claim: Claim) -> Plan:
    """A number of the five-layer network: Tables 1 and 2, and what the text repeats of them."""
    assert claim.metric is not None
    metric = claim.metric.split()[0]  # "dys upper bound"
    conditions = claim.conditions
    if "layers" in conditions:
        layers = [int(layer) for layer in conditions["layers"]]
    else:
        layers = [5 if conditions["layer"] == "output" else int(conditions["layer"])]
    jobs = SETUPS["mitt-affnist"].jobs(
        NET, metrics=metric, seeds=MODELS, data=("affnist",), at={"layers": layers}
    )
    return runs(claim, jobs)
