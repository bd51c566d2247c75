"""The rows of [peer2022]: what is trained for each, or why nothing is."""

from dataclasses import replace

from torchcaps_claims.claim import Claim
from torchcaps_claims.plan import Plan, no_run, runs
from torchcaps_claims.plans.plan_statement import Statements, plan_statement
from torchcaps_claims.sets import sets_in
from torchcaps_claims.setups import SETUPS

__all__ = ["plan"]

# The paper does not say how many runs stand behind a number.
SEEDS = 5
DYNAMIC, EM = "peer_deep_dynamic", "peer_deep_em"
SIGN_DYNAMIC, SIGN_EM = "peer_sign_dynamic", "peer_sign_em"
# Dynamic routing chooses among kinds of bias; EM routing has one or none.
BOTH = {DYNAMIC: "bias=none|added", EM: "bias=false|true"}
SIGN_OPEN = (
    "λ of the margin loss (1), iterations (3), hidden capsules (20), weights at the start and the "
    "rate (Adam, 0.0001); all but the iterations are from one version of public code"
)
# Controls that keep v(-u) = -v(u).
ODD = (
    f"{DYNAMIC} n_layers=4|5 bias=odd; {DYNAMIC} n_layers=4|5 squash=exp; "
    f"{DYNAMIC} n_layers=4|5 weight_std=0.3"
)

STATEMENTS: Statements = {
    "q-depth-em-nobias": (f"{EM} n_layers=5..9", "accuracy"),
    "q-depth-rba-nobias": (f"{DYNAMIC} n_layers=2..5", "accuracy"),
    "q-bias-enables-depth": (
        f"{DYNAMIC} n_layers=2..5 bias=added; {EM} n_layers=5..9 bias=true",
        "accuracy",
    ),
    "q-bias-starts-immediately": (f"{EM} n_layers=5..9 {BOTH[EM]}", "onset"),
    "q-bias-converges-faster": (
        f"{EM} n_layers=5 {BOTH[EM]}; {DYNAMIC} n_layers=2|3 {BOTH[DYNAMIC]}",
        "time_to",
    ),
    "q-sign-not-learnable": (f"{SIGN_DYNAMIC}; {SIGN_EM}", "accuracy"),
    "q-sign-learnable-with-bias": (f"{SIGN_DYNAMIC} bias=added; {SIGN_EM} bias=true", "accuracy"),
    "q-relu-shields-first-layer": (
        "capsnet primary_relu=true|false bias=false|true",
        "antipodal_share accuracy",
    ),
    "q-gradient-cancellation": (
        # Of EM routing the row asks nothing; the page says what comes of it.
        f"{SIGN_DYNAMIC} {BOTH[DYNAMIC]}; {DYNAMIC} n_layers=4 {BOTH[DYNAMIC]}; "
        f"{SIGN_EM} {BOTH[EM]}",
        "gradient_cancellation gradient_cancellation_at_start accuracy",
    ),
    "q-negatives-grow-with-depth": (
        f"{DYNAMIC} n_layers=5; {EM} n_layers=9; {DYNAMIC} n_layers=5 primary_relu=true",
        "antipodal_share antipodal_share_at_start accuracy",
    ),
    "q-symmetry-causes-depth-failure": (
        f"{DYNAMIC} n_layers=4|5 {BOTH[DYNAMIC]}; {ODD}",
        "accuracy",
    ),
    "q-bias-helps-generally": (
        f"{DYNAMIC} n_layers=2|3 {BOTH[DYNAMIC]}; {EM} n_layers=5|6 {BOTH[EM]}",
        "accuracy",
    ),
}
RBA, OF_EM = "tests/theory/test_peer.py::", "tests/theory/test_peer_em.py::"
SHOWN = {
    "lemma-1": f"{RBA}test_lemma_1_votes_are_negated",
    "lemma-2": f"{RBA}test_lemma_2_equal_couplings_negate_the_parents",
    **dict.fromkeys(("lemma-3", "lemma-4", "theorem-1"), f"{RBA}test_lemmas_3_and_4_and_theorem_1"),
    "lemma-5": f"{OF_EM}test_lemma_5_votes_are_negated",
    **dict.fromkeys(
        ("lemma-6", "lemma-9", "lemma-10", "lemma-11", "theorem-2"),
        f"{OF_EM}test_lemmas_6_to_11_and_theorem_2",
    ),
    **dict.fromkeys(("lemma-7", "lemma-8"), f"{OF_EM}test_lemmas_7_and_8_variances_are_equal"),
    "s41-rba-bias": f"{RBA}test_a_bias_breaks_the_symmetry_in_one_layer",
    "s42-em-bias": f"{OF_EM}test_section_4_2_one_layer_does_not_see_a_bias_on_the_votes",
    "beta-insufficient": f"{OF_EM}test_beta_a_and_beta_u_do_not_break_the_symmetry",
}


def plan(claim: Claim) -> Plan:
    """What becomes of a row of this paper."""
    name = claim.id.partition("-")[2]
    if name in SHOWN:
        return no_run(claim, "theory", shown_by=SHOWN[name])
    if claim.states:
        planned = plan_statement(claim, name, STATEMENTS, adapt=_adapt)
        is_of_signs = any(job.train == "sign" for job in planned.jobs)
        return replace(planned, left_open=SIGN_OPEN) if is_of_signs else planned
    if name in ("text-no-bias-share", "text-em-third-bias"):
        return no_run(claim, "survey")
    if name == "text-sign-train-size":
        shown = "tests/data/test_sign.py::test_the_grid_is_plus_and_minus_k_ten_thousandths"
        return no_run(claim, "setting", shown_by=shown)
    if name == "text-epochs":
        return no_run(claim, "setting")
    if name == "text-em-nobias-start":
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
