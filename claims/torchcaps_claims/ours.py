"""Networks of ours that answer questions beside the statements of the papers."""

from typing import Any

from torchcaps_claims.families import Families, Family
from torchcaps_claims.variants import Column, Variants

__all__ = [
    "AT_THE_STOP",
    "EM",
    "EM_TWIN",
    "FAMILIES",
    "FASHION",
    "LAMP",
    "LARGER",
    "MOVED",
    "OVERLAID",
    "PARTS",
    "SCALE",
    "SHARP",
    "SIDES",
    "SIDES_FASHION",
    "SOFT",
    "TREES",
    "TWINS",
    "WIDER",
    "WIDEST",
    "WIDEST_DIGITS",
]

SHARP = Variants(
    "Where a network routes that may choose",
    "sharp-agreement",
    "Ours: nine routed layers that may learn α, what agreement is multiplied by in a logit, one "
    "number a layer, from 0.1 on, and the same network with α fixed. At 0 nothing is routed, at 1 "
    "it is as in the papers. dyr is how much couplings change from image to image; a hidden layer "
    "is one of the eight below the classes. MNIST, 6,000 images, five epochs; every network starts "
    "with weights that keep lengths from layer to layer. In its 235 updates α can rise to 0.34 at "
    "most, so this says where it rises, and not where it would end. "
    "`torchcaps study run studies/sharp-agreement.toml --root data` makes the records.",
    ("agreement",),
    (0.0,),
    (
        Column("accuracy", "accuracy"),
        Column("accuracy less that at 0", "accuracy", is_compared=True),
        Column("dyr, hidden", "dyr", slice(-1)),
        Column("dyr, classes", "dyr", slice(-1, None)),
        Column("α, hidden", "agreement", slice(-1)),
        Column("α, classes", "agreement", slice(-1, None)),
        Column("dead capsules a layer", "cds"),
    ),
)
TWINS = Variants(
    "Routed and uniform twins",
    "mitterreiter2023/mitt2023-q-rba-causes-deaths",
    "Five layers of 16 capsules, the last of ten, and routing between them, as in "
    "[mitterreiter2023]; and the same network with uniform couplings: as many epochs, and the same "
    "seeds.",
    ("routing",),
    ("dynamic",),
    (
        Column("accuracy", "accuracy"),
        Column("accuracy less that of dynamic routing", "accuracy", is_compared=True),
        Column("dead capsules a layer", "cds@affnist-style/test"),
    ),
)
SOFT = SHARP._replace(
    title="The same for four times as long",
    study="sharp-agreement-for-longer",
    says="Ours: the same network with α learned from 0.1 on, for 20 epochs. In its 940 updates α "
    "can rise to 1.04, which is past the papers' 1. `torchcaps study run "
    "studies/sharp-agreement-for-longer.toml --root data` makes the record.",
    columns=(
        Column("accuracy", "accuracy"),
        Column("dyr, hidden", "dyr", slice(-1)),
        Column("dyr, classes", "dyr", slice(-1, None)),
        Column("α, the first two", "agreement", slice(2)),
        Column("α, the last two hidden", "agreement", slice(-3, -1)),
        Column("α, hidden", "agreement", slice(-1), line=1.0),
        Column("α, classes", "agreement", slice(-1, None), line=1.0),
        Column("dead capsules a layer", "cds"),
    ),
    short="longer",
)
AT_THE_STOP = TWINS._replace(
    title="The same twins, trained until they are equally right",
    study="",
    says="The same two networks, with all images, until 99.2 % of digits held out are right, where "
    "the paper stops: 15 to 20 epochs with routing, 5 to 12 without. Moved digits are ours, made "
    "as those of affNIST; in training, digits were shifted and no more. Those that route were "
    "trained on CPUs in float32, and the others on a GPU, with convolutions in TF32; the first of "
    "these in float32 on a CPU too, where it is "
    "right on 93.9 % of moved digits (record 6f306b83d359). `torchcaps study run "
    "studies/at-the-stop.toml --root data` makes the records of the first, and "
    "`studies/even-at-the-stop.toml` those of the second.",
    columns=(
        Column("accuracy", "accuracy"),
        Column("moved digits", "accuracy@affnist-style/test"),
        Column(
            "moved digits less that of dynamic routing",
            "accuracy@affnist-style/test",
            is_compared=True,
        ),
        Column("dead capsules a layer", "cds@affnist-style/test"),
    ),
    where={
        "data": "expanded-mnist",
        "model": "mitterreiter_5x16",
        "train_images": None,
        "epochs": 50,
        "stop_at": 0.992,
    },
    short="at the stop",
)
PARTS = TWINS._replace(
    title="The same twins on images made of parts",
    study="mitterreiter2023/mitt2023-q-no-dedicated-entity",
    says="The same two networks on the part-whole set, whose classes differ in how the same parts "
    "lie to each other, five epochs. A capsule is dedicated to a part if its length tells this "
    "part from its absence, and of every other nothing among images alike in the first. "
    "`torchcaps study run mitt2023-q-no-dedicated-entity --reduced` makes the records.",
    columns=(
        Column("accuracy", "accuracy"),
        Column("accuracy less that of dynamic routing", "accuracy", is_compared=True),
        Column("share of capsules dedicated to a part", "one_part"),
    ),
    short="parts",
)
# What a network gains that routes, over its twin that does not.
GAIN = (Column("gain in points", "accuracy", is_compared=True),)


def _twin(network: str, study: str, routing: str = "dynamic") -> Family:
    """Of a study of its own, on Fashion-MNIST, whose twin has uniform couplings."""
    variants = Variants("", study, "", ("routing",), ("uniform",), GAIN, short=network)
    return Family(network, routing.replace("_", "-"), "Fashion-MNIST", variants)


def _one_iteration(study: str, network: str, routing: str, images: str, **where: Any) -> Family:
    """Its twin has one iteration, which begins with couplings that are all alike, and has no
    second."""
    variants = Variants("", study, "", ("iterations",), (1,), GAIN, where=where, short=network)
    return Family(network, routing, images, variants)


EM_TWIN = _one_iteration(
    "even-em", "matrix capsules of [hinton2018]", "EM, 2 iterations", "Fashion-MNIST"
)
FAMILIES = Families(
    "Every family",
    "Networks that route, and the same with couplings at an even split; where a routing has no "
    "such form, with one iteration, the pass that starts from equal couplings and goes no further. "
    "Efficient-CapsNet's twin has no learned prior, which belongs to its attention. No network has "
    "a decoder but the five layers of [mitterreiter2023]. 10,000 images, "
    "two to five epochs, as many for either, and paired seeds; the five layers of "
    "[mitterreiter2023] have 20,000 digits and seven epochs, and the last has three seeds. So it "
    "says what routing gains in a short training, in points of accuracy with 95 % intervals. "
    "`torchcaps study run studies/even-capsnet.toml --root data` and its neighbours "
    "`studies/even-….toml` make the records; `torchcaps study run "
    "tsai2020-q-gain-over-uniform-pass --reduced --only tsai_inverted_simple_c10` those of "
    "inverted attention.",
    (
        Family(
            "five layers of [mitterreiter2023]",
            "dynamic",
            "expanded MNIST",
            TWINS._replace(compared_with=("uniform",), columns=GAIN, short="five layers"),
        ),
        _twin("CapsNet, 64 channels", "even-capsnet"),
        _twin("four layers of [peer2022], 64 channels, with a bias", "even-deep"),
        _twin("DeepCaps", "even-deepcaps"),
        _twin("γ-CapsNet", "even-gamma", "distance"),
        _twin("Efficient-CapsNet", "even-attention", "self_attention"),
        EM_TWIN,
        _one_iteration(
            "tsai2020",
            "the plain network of [tsai2020]",
            "inverted, 2 iterations",
            "CIFAR-10",
            model="tsai_inverted_simple_c10",
            train_images=10_000,
            iterations=frozenset({1, 2}),
            schedule="concurrent",
            layer_norm=True,
            activations=False,
            start="none",
            loss="auto",
        ),
    ),
)
CAPSNETS = frozenset({"gu_capsnet", "gu_capsnet_nor"})
MOVED = Variants(
    "CapsNet with and without routing",
    "gu2021",
    "CapsNet of [gu2021], two layers with 4,608 children and ten parents, and the same without "
    "routing, where votes are averaged over the children. A sum of 4,608 votes that each count a "
    "tenth is 461 times as long as their mean, so the second starts with that much shorter "
    "parents. A first convolution of 64 channels, 40,000 digits, five epochs in bfloat16; moved "
    "digits are ours, made as those of affNIST. Neither comes to the 99.22 % of clean digits at "
    "which the paper stops, and the one that is right on more of these is right on more moved "
    "ones too: this says how soon they learn, and not how robust they are. `torchcaps study run "
    "gu2021-q-dr-harms-affine --reduced` makes the records, and more than these.",
    ("routing",),
    ("dynamic",),
    (
        Column("accuracy", "accuracy"),
        Column("accuracy less that of dynamic routing", "accuracy", is_compared=True),
        Column("moved digits", "accuracy@affnist-style/test"),
        Column(
            "moved digits less that of dynamic routing",
            "accuracy@affnist-style/test",
            is_compared=True,
        ),
    ),
    where={"data": "expanded-mnist", "model": CAPSNETS, "width": 64, "kernel": 9},
    short="digits",
)
OVERLAID = MOVED._replace(
    title="The same on pairs of digits",
    study="",
    differ_in=("routing", "normalise"),
    compared_with=("dynamic", "softmax"),
    says="The same networks, as wide as in the paper, after one epoch of 30,000 pairs of overlaid "
    "digits; and one that is ours, whose couplings are all a tenth, so that it starts with parents "
    "as long as CapsNet's. The two highest scores are to be the two digits; guesses are right on "
    "2 %. The paper has 93 % and 90 % after six million pairs, so this too says how soon they "
    "learn. `torchcaps study run gu2021-q-all-components-help-multimnist --reduced` made the first "
    "two records on a GPU, and `torchcaps study run studies/even-split.toml --root data` the third "
    "on a CPU; beside dynamic routing on that CPU (record d09a22814692) it is ahead by 3.0 "
    "points [1.9, 4.2].",
    columns=(
        Column("accuracy", "accuracy"),
        Column("accuracy less that of dynamic routing", "accuracy", is_compared=True),
    ),
    where={
        "data": "multi-mnist",
        "model": CAPSNETS,
        "train_images": 30_000,
        "epochs": 1,
        "learning_rate": 3e-4,
        "precision": "bfloat16",
        "loss": "auto",
        "sharing": "none",
        "decoder": True,
        "class_squash": "hinton",
        "kernel": 9,
    },
    short="pairs",
)
SCALE = Variants(
    "Depth, initial scale and routing at once",
    "deep-scale",
    "Ours: four and nine routed layers of 16 capsules, from weights of N(0, 0.1²) and of N(0, 1), "
    "with an agreement of 1 in a logit as in the papers, and of 0, where nothing is routed. MNIST, "
    "6,000 images, five epochs. Nine layers whose weights are scaled until lengths keep from layer "
    "to layer, and whose agreement is 0, 0.3, 1 or learned, are on [the page of routing]"
    "(does-routing-help.md#where-a-network-routes-that-may-choose), out of "
    "`studies/sharp-agreement.toml`. Guesses are right on 10 to 11 %; a network that learns, we "
    "say, on more than 20. "
    "`torchcaps study run studies/deep-scale.toml --root data` makes the records.",
    ("widths", "weight_std", "agreement"),
    (None, None, None),
    (
        Column("accuracy", "accuracy", line=20.0),
        Column("dead capsules a layer, hidden", "cds", slice(-1)),
        Column("dyr, hidden", "dyr", slice(-1)),
        Column("dyr, classes", "dyr", slice(-1, None)),
    ),
)
SIDES = Variants(
    "A bias, and one that cannot tell signs",
    "peer2022",
    "The networks of [peer2022] Table 2, two to five capsule layers of dynamic routing on MNIST, "
    "from weights of N(0, 0.1²) unless weight_std says otherwise. A bias is added to the sum of "
    "votes before its squash. The odd one is ours: of the bias and its negative the one that lies "
    "on the side of the sum, so that primary capsules and their negatives still give the same "
    "scores bit for bit (`test_an_odd_bias_keeps_the_symmetry` in tests/theory/test_peer.py). "
    "Guesses are right on 10 to 11 %; a network that learns, we say, on more than 20. "
    "`torchcaps study run peer2022 --reduced --only peer_deep_dynamic --only 'on mnist'` makes the "
    "records, and more than these.",
    ("n_layers", "bias", "squash", "weight_std"),
    (None, None, None, None),
    (Column("accuracy", "accuracy", line=20.0),),
    where={"model": "peer_deep_dynamic", "data": "mnist", "width": 32},
)
SIDES_FASHION = SIDES._replace(
    title="The same on Fashion-MNIST",
    says="`torchcaps study run peer2022 --reduced --only peer_deep_dynamic --only fashion-mnist` "
    "makes the records, and more than these.",
    where={"model": "peer_deep_dynamic", "data": "fashion-mnist", "width": 32},
    short="Fashion",
)
LARGER = SIDES._replace(
    title="Larger weights and no bias",
    study="depth-without-bias",
    says="Ours: the same networks without a bias, from larger weights. "
    "`torchcaps study run studies/depth-without-bias.toml --root data` makes the records.",
    differ_in=("n_layers", "weight_std"),
    compared_with=(None, None),
    columns=(
        Column("accuracy", "accuracy", line=20.0),
        Column("dead capsules a layer", "cds"),
    ),
    where={},
)
EM = Variants(
    "EM routing, with a bias and without",
    "em-depth",
    "Ours: five, seven and nine capsule layers of EM routing as in [peer2022] Table 3, on digits "
    "of 20 × 20 pixels: 20,000 images, one epoch, a first convolution of 32 channels. The bias is "
    "one on the votes, from 0.1. These networks saw the middle 20 × 20 pixels of each image in "
    "every epoch; trained again they would see windows from anywhere. `torchcaps study run "
    "studies/em-depth.toml --root data` makes the records.",
    ("n_layers", "bias"),
    (None, None),
    (Column("accuracy", "accuracy", line=20.0), Column("dead capsules a layer", "cds")),
)
TREES = Variants(
    "Entropy of networks pruned in every way",
    "renzulli2025/pruned_trees",
    "Ours: a small DR-CapsNet on MNIST, pruned to 90 % in every way but by LOBSTER, which finds "
    "its own share. Couplings are on eleven levels; no entropy can be above 9.97 bit, that of "
    "classes in which every image has a tree of its own. "
    "`python benchmarks/pruned_trees.py FOLDER --root data --reduced --seeds 0 1 2 3 4` makes "
    "the records, and [another page](../pruned-trees.md) says what follows.",
    ("prune", "epochs"),
    (None, 12),
    (
        Column("sparsity", "sparsity"),
        Column("accuracy", "accuracy+K11"),
        Column("accuracy less that of the unpruned", "accuracy+K11", is_compared=True),
        Column("entropy", "entropy+K11"),
        Column("entropy less that of the unpruned", "entropy+K11", is_compared=True),
        Column("keys a class", "keys+K11"),
        Column("zero blocks", "zero_blocks"),
        Column("zero votes", "zero_votes"),
    ),
    where={"width": 16},
    short="MNIST, 16",
)
WIDER = TREES._replace(
    title="The same of wider networks",
    says="Ours: DR-CapsNet with a trunk of 32 channels, 20,000 images of MNIST, 12 epochs in "
    "bfloat16, pruned to 90 % by magnitude, and as far as LOBSTER comes. It shrinks weights as "
    "much as in 300 epochs of the paper's public code by 0.0011 a step, and three times as much by "
    "0.0034. Couplings are on eleven levels. `python benchmarks/pruned_trees.py FOLDER --root data "
    "--middle --precision bfloat16 --data mnist --ways dense magnitude lobster` makes the records, "
    "with `--shrink 0.0034` those of the other.",
    differ_in=("prune", "prune_shrink", "epochs"),
    compared_with=(None, 1e-4, 12),
    where={"width": 32, "data": "mnist", "precision": "bfloat16"},
    short="MNIST, 32",
)
FASHION = WIDER._replace(
    title="The same of wider networks on Fashion-MNIST",
    says="Ours: the same networks on images of Fashion-MNIST, by `--data fashion-mnist`.",
    where={"width": 32, "data": "fashion-mnist", "precision": "bfloat16"},
    short="Fashion, 32",
)
WIDEST = FASHION._replace(
    title="The widest, on Fashion-MNIST",
    says="Ours: a trunk of 128 channels, half as wide as the paper's; 30 epochs. No `--middle`.",
    compared_with=(None, 1e-4, 30),
    where={"width": 128, "data": "fashion-mnist", "precision": "bfloat16"},
    short="Fashion, 128",
)
WIDEST_DIGITS = WIDEST._replace(
    title="The widest, on MNIST",
    says="Ours: the same networks on MNIST, beside controls: random masks of the same 90 %, and "
    "masks that are put on at the end, with no training after it. Accuracy too is with "
    "couplings on eleven levels. `python "
    "benchmarks/pruned_trees.py FOLDER --root data --data mnist --ways dense magnitude lobster "
    "random_masks mask_at_the_end` makes the records: LOBSTER's on a CPU in "
    "float32, the others on a GPU, with convolutions in TF32.",
    where={"width": 128, "data": "mnist", "precision": "float32"},
    short="MNIST, 128",
)
LAMP = WIDER._replace(
    title="Pruned by LAMP scores",
    says='Ours: networks as wide in float32, with `prune_scope = "lamp"`, by which layers lose '
    "different shares of their weights, 90 % of all. `python benchmarks/pruned_trees.py FOLDER "
    "--root data --middle --data mnist --ways dense lamp` makes the records.",
    differ_in=("prune", "prune_scope", "epochs"),
    compared_with=(None, "network", 12),
    where={"width": 32, "data": "mnist", "precision": "float32"},
)
