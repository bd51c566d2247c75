"""The statements of [renzulli2025], and what shows those that need no training."""

from torchcaps_claims.plan import Word
from torchcaps_claims.plans.plan_statement import Statements

__all__ = ["SHOWN", "STATEMENTS"]

Q, REM = "+quantise", "+prune +quantise"
DR, EFF = "DR-CapsNet", "Eff-CapsNet"
FOUR = (DR, "γ-CapsNet", "DeepCaps", EFF)
# Compared with families that have no width, so not made narrower.
BESIDE_OTHERS = (f"{DR} width=256", *FOUR[1:])
AT_HAND = ("mnist", "fashion-mnist", "cifar10")
NOVEL = ("smallnorb-elevation", "smallnorb-azimuth")
# The sets of the tables that are named by their numbers alone.
EVERYWHERE = (*AT_HAND, "svhn", "affnist", *NOVEL, "dogs-vs-cats", "imagenette", "tiny-imagenet")


def each(families: tuple[str, ...], *steps: str) -> str:
    """Lines of families, each with each of several ends."""
    return "; ".join(f"{family} {step}" for family in families for step in steps)


STATEMENTS: Statements = {
    "q-entropy-lower-everywhere": (
        each((*FOUR, "Eff-ConvCapsNet"), Q, REM),
        "entropy",
        EVERYWHERE,
    ),
    "q-negligible-loss": (each((*FOUR, "Eff-ConvCapsNet"), "", REM), "accuracy sparsity"),
    "q-keys-lower": (each((DR,), Q, REM), "keys"),
    "q-eff-low-entropy": (each(BESIDE_OTHERS, Q, REM), "entropy"),
    "q-selfattention-collapse": (
        # Couplings as they are, and the entropy of those on the grid.
        each((EFF,), "", Q),
        "coupling_std entropy",
        (*AT_HAND, "svhn"),
    ),
    "q-low-pruning-noisy": (
        f"{DR} {Q}; {DR} @sparsity=10|20|30|60|80|90 {REM}",
        "entropy sparsity",
    ),
    "q-undertrained-high-entropy": (
        f"{each((DR,), Q, REM)}; {each((DR,), f'stopped {Q}', f'stopped {REM}')}",
        "entropy accuracy",
    ),
    "q-rem-affine-robust": (
        f"{each((DR,), Q, REM)}; {each((DR,), f'stopped {Q}', f'stopped {REM}')}",
        "accuracy",
    ),
    "q-rem-novel-viewpoint": (each((EFF,), Q, REM), "accuracy entropy"),
    "q-entropy-starts-low": (f"{DR} @K=11 {REM}", "entropy"),
    "q-k-affects-performance": (
        each((DR,), f"@K=2|3|4|6|11|21|41|129 {Q}", f"@K=2|3|4|6|11|21|41|129 {REM}"),
        "accuracy entropy",
    ),
    "q-snip-worse": (
        f"{DR} {Q}; {each((DR,), f'@sparsity=50|60|70|80|90 {REM}')}; "
        f"{DR} @sparsity=50|60|70|80|90 +snip {Q}",
        "accuracy entropy sparsity",
    ),
    "q-decoder-limits": (
        each((DR,), f"decoder=true|false {Q}", f"decoder=true|false {REM}"),
        "sparsity entropy",
    ),
    "q-still-equivariant": (
        f"{DR}; {DR} +prune",
        "drawn_components",
    ),
    # Photographs come without masks; drawn objects amid strays have theirs.
    "q-saliency-focus": (each(("Eff-ConvCapsNet",), Q, REM), "focus", ("part-whole",)),
    "q-fewer-capsules-in-tree": (each(("multilayer",), Q, REM), "tree_size"),
    # Of couplings as they are: on eleven levels those from 0.05 to 0.15 are all alike.
    "q-sparser-couplings": (each((DR,), "", "+prune"), "coupling_inequality"),
    "q-epoch1-uniform": (f"{DR} @epoch=1 @K=11", "coupling_levels"),
    "q-gamma-lowest": (each(BESIDE_OTHERS, Q, REM), "entropy"),
    "q-norb-saliency-less": (
        each((DR,), Q, REM),
        "accuracy saliency",
        (*NOVEL, "fashion-mnist", "cifar10"),
    ),
    "q-iterations-polarise": (f"{DR} iterations=1..10", "polarisation"),
    "q-pruning-zeroes-whole-votes": (each(FOUR, Q, REM), "zero_blocks entropy"),
    "q-entropy-falls-by-pruning": (
        f"{each((DR,), Q, REM)}; {DR} :keep=last {Q}; {DR} +random_masks {Q}; "
        f"{DR} +mask_at_the_end {Q}",
        "entropy sparsity",
    ),
    "q-any-pruning": (
        f"{DR} {Q}; "
        + each(
            (DR,),
            *(f"@sparsity=80 +{how} {Q}" for how in ("prune", "magnitude", "snip", "random_masks")),
        ),
        "entropy accuracy sparsity",
    ),
}
THEORY = "tests/theory/test_renzulli.py::"
KEYS = "tests/theory/test_renzulli_keys.py::"
SHOWN: dict[str, tuple[Word, str | None]] = {
    "eq-6-ideal": ("theory", f"{KEYS}test_equation_6_one_hot_couplings_have_one_key_a_class"),
    "eq-7-closed-form": (
        "theory",
        "tests/ops/test_dynamic.py::test_logits_are_the_prior_plus_all_agreements",
    ),
    "eq-8-init": ("theory", f"{KEYS}test_equation_8_of_digits_and_five_seeds"),
    "eq-9-gradient": ("theory", f"{THEORY}test_equation_9_misses_terms_of_the_full_graph"),
    "eq-12-pruned": ("theory", f"{THEORY}test_equation_12_one_pruned_vote"),
    "eq-14-entropy": (
        "theory",
        f"{KEYS}test_equation_14_random_keys_never_exceed_the_bound",
    ),
    # It asks for one network, or one constructed layer: the layer is enough.
    "q-sparse-votes-not-couplings": (
        "theory",
        f"{KEYS}test_three_votes_of_four_are_zero_and_few_couplings_are_small",
    ),
    "q-r1-zero-entropy": ("theory", f"{KEYS}test_one_iteration_has_no_entropy"),
    "q-quantiser-inference-only": (
        "configuration",
        f"{KEYS}test_quantised_couplings_of_every_epoch_change_no_weight",
    ),
}
