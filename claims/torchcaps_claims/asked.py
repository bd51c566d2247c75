"""The questions that the papers fight over: which statements answer them, and which networks of
ours beside these."""

from collections.abc import Mapping
from typing import NamedTuple

from torchcaps_claims.families import Families
from torchcaps_claims.ours import (
    AT_THE_STOP,
    EM,
    EM_TWIN,
    FAMILIES,
    FASHION,
    LAMP,
    LARGER,
    MOVED,
    OVERLAID,
    PARTS,
    SCALE,
    SHARP,
    SIDES,
    SIDES_FASHION,
    SOFT,
    TREES,
    TWINS,
    WIDER,
    WIDEST,
    WIDEST_DIGITS,
)
from torchcaps_claims.variants import Side, Variants

__all__ = ["QUESTIONS", "Plain", "Question"]


class Plain(NamedTuple):
    """An answer in a sentence, and what networks of ours must show for it to be given."""

    variants: Variants
    # Column, label and side, as `variants.sides_of` has them.
    needs: frozenset[Side]
    says: str


NONE = Families("", "", ())


class Question(NamedTuple):
    """A question, and the statements whose verdicts answer it."""

    title: str
    says: str
    # What it would mean if the statement held: "yes" or "no", by the id of the statement.
    answers: Mapping[str, str]
    # Those that say nothing of it where they fail.
    only_held: frozenset[str] = frozenset()
    # What no statement compares as it is.
    own: tuple[Variants, ...] = ()
    # Twins of many networks in one table.
    families: Families = NONE
    # Whose dead capsules are counted.
    dying: tuple[Variants, ...] = ()
    plain: tuple[Plain, ...] = ()


# What nobody would call a way to prune.
CONTROLS = ("random_masks", "mask_at_the_end")
QUESTIONS: Mapping[str, Question] = {
    "does-routing-help": Question(
        "Does routing help?",
        "Dynamic couplings against fixed ones, at equal epochs or equal accuracy, and paired "
        "seeds.",
        {
            "mitt2023-q-uniform-routing-better": "no",
            "gu2021-q-dr-harms-affine": "no",
            "mitt2023-q-last-layer-more-dynamic": "yes",
            "tsai2020-q-perf-increases-with-iterations": "yes",
            "tsai2020-q-gain-over-uniform-pass": "yes",
            "tsai2020-q-routing-beats-pooling": "yes",
            "gu2021-q-all-components-help-multimnist": "yes",
        },
        # That couplings of the last layer change no more than those below may be anything.
        only_held=frozenset({"mitt2023-q-last-layer-more-dynamic"}),
        own=(TWINS, AT_THE_STOP, PARTS, MOVED, OVERLAID, SHARP, SOFT),
        families=FAMILIES,
        plain=(
            Plain(
                TWINS,
                frozenset({("accuracy less that of dynamic routing", "routing uniform", "above")}),
                "**No, in five layers of [mitterreiter2023]**, trained for seven epochs: with its "
                "couplings fixed at an even split the same network is right more often, by an "
                "interval of its own. In a "
                "smaller network, on images made of parts, better first weights [close the gap]"
                "(../measures.md#which-routing-finds-the-true-tree); in this one, after two "
                "epochs, [they do not](../demo.md).",
            ),
            Plain(
                AT_THE_STOP,
                frozenset(
                    {("moved digits less that of dynamic routing", "routing uniform", "above")}
                ),
                "**Nor does it make that network more robust**: trained until either is right on "
                "as many digits, the one without routing is right on more that were stretched, "
                "leant and turned.",
            ),
            Plain(
                OVERLAID,
                frozenset(
                    {
                        ("accuracy less that of dynamic routing", "routing uniform", "above"),
                        (
                            "accuracy less that of dynamic routing",
                            "routing uniform, normalise mean",
                            "below",
                        ),
                    }
                ),
                "**Nor in CapsNet, after a short training on pairs of digits**: without routing, "
                "as [gu2021] has it, it learns later; but with all couplings at a tenth, which is "
                "no routing either, sooner than with routing. What it lacked was scale, for votes "
                "were averaged over 3,200 children ([a finding](../findings/no-routing.md)).",
            ),
            Plain(
                EM_TWIN.variants,
                frozenset({("gain in points", "iterations 2", "above")}),
                "**Yes, in EM routing on Fashion-MNIST**, in five epochs: with two iterations a "
                "network is right more often than with the first alone, in which all couplings "
                "are even.",
            ),
            Plain(
                SOFT,
                frozenset(
                    (f"α, {layers}", "agreement learned", "below")
                    for layers in ("hidden", "classes")
                ),
                "**Softly, where a network may learn how sharp its agreement is**: α stays below "
                "the papers' 1 in nine layers that had time to reach it, and is highest at the "
                "classes ([numbers](#the-same-for-four-times-as-long)).",
            ),
        ),
    ),
    "does-depth-kill-capsules": Question(
        "Does depth kill capsules, or do initial scale and sharp agreement?",
        "Dead capsules and accuracy of deep networks, with routing and without. What the initial "
        "scale does by itself is [a finding](../findings/initial-scale.md).",
        {
            "mitt2023-q-dead-increase-with-depth": "yes",
            "mitt2023-q-depth-limited-by-deaths": "yes",
            "mitt2023-q-rba-causes-deaths": "no",
            "peer2022-q-depth-rba-nobias": "yes",
            "peer2022-q-depth-em-nobias": "yes",
            "peer2022-q-bias-enables-depth": "no",
            "peer2022-q-symmetry-causes-depth-failure": "no",
        },
        # That something else than the symmetry keeps a network from learning may be anything.
        only_held=frozenset({"peer2022-q-symmetry-causes-depth-failure"}),
        own=(SCALE, SIDES, SIDES_FASHION, LARGER, EM),
        dying=(TWINS, AT_THE_STOP, SCALE, SHARP, SOFT, LARGER, EM),
        plain=(
            Plain(
                SCALE,
                frozenset({("accuracy", "weight_std", "decides")}),
                "**Initial scale, where all three were varied**: it alone decides whether networks "
                "of four and nine layers learn, with routing or without.",
            ),
            Plain(
                EM,
                frozenset(
                    {
                        ("accuracy", "n_layers 9, bias True", "above"),
                        ("accuracy", "n_layers 9, bias False", "below"),
                    }
                ),
                "**And a bias, in EM routing of nine layers**, trained for one epoch: with one "
                "they learn, and without one they are still at chance.",
            ),
            Plain(
                SIDES,
                frozenset(
                    {
                        ("accuracy", "n_layers 5, bias odd", "above"),
                        ("accuracy", "n_layers 5, bias none", "below"),
                    }
                ),
                "**In dynamic routing of five layers too**, in three epochs, even with a bias that "
                "cannot tell signs: with it they learn, and without one they are still at chance.",
            ),
        ),
    ),
    "does-pruning-make-trees-simpler": Question(
        "Does pruning make trees simpler?",
        "Entropy and keys of quantised couplings before pruning and after, and beside controls. "
        "They depend on the grid, which is [a finding](../findings/chosen-levels.md); here it is "
        "of eleven levels.",
        {
            "rem-q-entropy-lower-everywhere": "yes",
            "rem-q-keys-lower": "yes",
            "rem-q-entropy-falls-by-pruning": "yes",
            "rem-q-any-pruning": "yes",
            "rem-q-low-pruning-noisy": "no",
            "rem-q-fewer-capsules-in-tree": "yes",
        },
        own=(TREES, WIDER, FASHION, WIDEST, WIDEST_DIGITS, LAMP),
        plain=(
            Plain(
                TREES,
                frozenset(
                    (f"{name} less that of the unpruned", f"prune {way}", "below")
                    for name, ways in (
                        ("entropy", ("lobster", "magnitude", "snip", *CONTROLS)),
                        ("accuracy", ("lobster", "magnitude", *CONTROLS)),
                    )
                    for way in ways
                ),
                "**Fewer on one grid, and less accurate**: in a small network on MNIST, pruned to "
                "90 %, every way to prune lowers the entropy; LOBSTER, which prunes less, and "
                "magnitude cost accuracy. The controls, weights masked at random or after "
                "training, lower it too, and are wrong far more often. So a low entropy alone does "
                "not make a network better.",
            ),
            Plain(
                WIDEST,
                frozenset({("entropy less that of the unpruned", "prune magnitude", "above")}),
                "**More in the widest, on Fashion-MNIST**: with 128 channels magnitude [raises the "
                "entropy](../pruned-trees.md#what-a-sparsity-of-90-percent-costs).",
            ),
            Plain(
                WIDEST_DIGITS,
                frozenset({("entropy less that of the unpruned", "prune magnitude", "open")}),
                "**Open in the widest, on MNIST**: with as many channels three seeds do not tell "
                "whether magnitude raises the entropy or lowers it.",
            ),
        ),
    ),
}
