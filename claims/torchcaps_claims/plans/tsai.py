"""The rows of [tsai2020]: what is trained for each, or why nothing is."""

import re

from torchcaps.data.registry import data_set
from torchcaps_claims.claim import Claim
from torchcaps_claims.plan import Plan, Word, no_run, runs
from torchcaps_claims.plans.plan_statement import Statements, plan_statement
from torchcaps_claims.sets import sets_in
from torchcaps_claims.setups import SETUPS

__all__ = ["plan"]

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

# `*` stands for the two sets of CIFAR, of ten classes and of a hundred.
INV, DR, EM = (f"tsai_{routing}_simple_*" for routing in ("inverted", "dynamic", "em"))
INV_RESNET, DR_RESNET, EM_RESNET = (
    f"tsai_{routing}_resnet_*" for routing in ("inverted", "dynamic", "em")
)
SIX = f"{INV}; {DR}; {EM}; {INV_RESNET}; {DR_RESNET}; {EM_RESNET}"
VECTOR, MATRIX, CNN, FCPOOL = (
    f"tsai_dmm_{kind}" for kind in ("vector", "matrix", "cnn", "cnn_fcpool")
)

STATEMENTS: Statements = {
    "q-perf-increases-with-iterations": (f"{INV} {SWEEP}", "accuracy"),
    "q-smallest-variance": (f"{INV} {SWEEP}; {DR} {SWEEP}; {EM} {SWEEP}", "accuracy"),
    "q-dr-drops-with-iterations": (f"{DR} {SWEEP}", "accuracy"),
    "q-em-best-at-2": (f"{EM} {SWEEP}", "accuracy"),
    "q-no-layernorm-collapse": (
        f"{INV} {SWEEP} layer_norm=true|false",
        "accuracy confidence",
    ),
    "q-sequential-no-correlation": (f"{INV} {SWEEP} schedule=sequential|concurrent", "accuracy"),
    "q-activations-hurt": (f"{INV} {SWEEP} activations=true|false", "accuracy"),
    "q-jitters": (f"{INV} iterations=1|5", "jitter"),
    "q-inv-gt-dr-gt-em": (SIX, "accuracy"),
    "q-resnet-backbone-helps": (SIX, "accuracy"),
    "q-simple-below-cnn": (f"tsai_cnn_*; {INV}; {DR}; {EM}", "accuracy"),
    "q-matches-resnet18": (f"{INV_RESNET}; resnet18; tsai_resnet18_c100", "accuracy parameters"),
    "q-inv-beats-dr-dmm": (f"{VECTOR}; tsai_dmm_vector_dynamic", "accuracy"),
    "q-routing-beats-pooling": (f"{VECTOR}; {CNN}; {FCPOOL}", "accuracy"),
    "q-vector-vs-matrix": (f"{VECTOR}; {MATRIX}", "accuracy parameters"),
    "q-zero-init-ok": (f"{INV} start=none|random|learned", "accuracy time_to"),
    "q-ce-at-least-as-good": (
        f"{INV} :loss=auto|margin|spread; {VECTOR} :loss=auto|margin|spread",
        "accuracy",
    ),
    "q-fixed-point": (
        f"{INV} iterations=2..5; {INV_RESNET} iterations=2..5",
        "fixed_point_distance",
    ),
    "q-pose-dim-reduces-jitter": (
        f"{INV} iterations=5; tsai_inverted_simple_c10_d36 iterations=5; "
        f"tsai_inverted_simple_c10_d64 iterations=5",
        "jitter",
    ),
    "q-layernorm-stabilises": (
        f"{INV} iterations=2|3 layer_norm=true|false",
        "accuracy time_to",
    ),
    "q-concurrent-stabilises": (
        f"{INV} iterations=3|5 schedule=sequential|concurrent",
        "accuracy jitter gradient_norms",
    ),
    "q-dmm-converges-better": (f"{VECTOR}; {CNN}; {FCPOOL}", "area time_to"),
    "q-gain-over-uniform-pass": (f"{INV} {SWEEP}; {INV_RESNET} {SWEEP}", "accuracy"),
}
COSTS = "tests/claims/test_costs.py::"
MADE = "tests/data/test_diverse_multi_mnist.py::"
SHOWN: dict[str, tuple[Word, str | None]] = {
    "q-first-iteration-uniform": (
        "theory",
        "tests/theory/test_tsai.py::test_parents_of_zero_make_the_first_iteration_uniform",
    ),
    "q-matrix-weights-linear": (
        "count",
        "tests/theory/test_tsai.py::"
        "test_a_matrix_pose_needs_d_weights_a_pair_and_a_vector_pose_their_square",
    ),
    "q-concurrent-parallel": (
        "count",
        "tests/layers/test_schedule.py::test_concurrent_steps_wait_for_fewer_others",
    ),
    "q-comparison-table": (
        "configuration",
        "tests/models/test_variants.py::test_the_comparison_of_three_routings",
    ),
    "q-cost-grows": (
        "benchmark",
        f"{COSTS}test_an_iteration_more_takes_more_time_and_not_always_more_memory",
    ),
    "text-4x-fewer": (
        "count",
        f"{COSTS}test_inverted_attention_has_a_quarter_of_the_parameters",
    ),
    "text-train-images": (
        "setting",
        f"{MADE}test_training_takes_as_many_images_as_printed",
    ),
    "text-p-single": ("setting", f"{MADE}test_one_image_in_six_shows_a_single_digit"),
    "text-p-overlap": ("setting", f"{MADE}test_one_image_in_six_shows_a_single_digit"),
    "text-shift": ("setting", None),
}
SIZES = "tests/claims/test_sizes.py::test_a_published_size"


def plan(claim: Claim) -> Plan:
    """What becomes of a row of this paper."""
    name = claim.id.partition("-")[2]
    if claim.configuration is not None:
        return no_run(claim, "unspecified")
    if name in SHOWN:
        word, shown_by = SHOWN[name]
        return no_run(claim, word, shown_by=shown_by)
    if claim.states:
        return plan_statement(claim, name, STATEMENTS, adapt=_adapt)
    if claim.metric == "output_shape":
        return no_run(claim, "shape", shown_by=SIZES)
    if claim.kind == "params":
        return no_run(claim, "count", shown_by=SIZES)
    if claim.origin == "cited":
        return no_run(claim, "cited")
    return _accuracy(claim, name)


def _accuracy(claim: Claim, name: str) -> Plan:
    """A cell of Table 1, or a number of Fig. 5."""
    assert claim.dataset is not None
    (data,) = sets_in(claim.dataset)
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
