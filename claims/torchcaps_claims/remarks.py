"""What a reader of a verdict should know that its numbers do not say, by the id of the claim.

None of these depends on how the verdict came out; where one tells of other records, it names them.
"""

from collections.abc import Mapping

__all__ = ["JUDGED_OTHERWISE", "REMARKS"]

# Where a judge leaves the row of its claim.
JUDGED_OTHERWISE: Mapping[str, str] = {
    "mitt2023-q-no-dedicated-entity": (
        "other parts are looked for among images alike in the first part, where the row takes all "
        "images: parts come together, so that a perfect detector of one has up to 0.74 for others"
    ),
}

REMARKS: Mapping[str, str] = {
    "gu2021-q-convnet-avg-beats-capsnet": (
        "the paper stops both at 99.22 % of clean digits; ConvNet-Avg came to 97.7 and CapsNet to "
        "98.6 % (records fab8337b235a and 4cf9b0ffae8f)"
    ),
    "gu2021-q-cr-and-squash-semantic": (
        "CR differs from R in its masked decoder and in how units become scores, and no ReLU "
        "follows our 160 units; the paper names neither the grid of the factors nor the logarithm"
    ),
    "gu2021-q-cr-separates-classes": (
        "what the decoder sees is masked by the true class, so that classes lie apart by "
        "construction but for vectors near zero; those of our toy set lie apart before any layer"
    ),
    "gu2021-q-dr-harms-affine": (
        "of the pair that shares matrices the one with dynamic routing is dead from its first "
        "epoch on (record 509d59256ea4), and so is one without it whose couplings are as large "
        "(record 971d907e7d6a)"
    ),
    "mitt2023-q-active-less-than-classes": (
        "the sentence is conditional, and what is judged is its premise, that fewer capsules are "
        "active than there are classes"
    ),
    "mitt2023-q-different-tree-similar-image": (
        "the paper says that it can happen, and shows one pair; judged is whether it happens for "
        "more than one image in a hundred"
    ),
    "mitt2023-q-does-not-scale": (
        "the plain network has 5.3 million parameters on every set; capsule networks have 1.5 to 8 "
        "on MNIST and 4 to 36 where images are in colour, most of them in their decoder"
    ),
    "mitt2023-q-last-layer-more-dynamic": (
        "dys is a sum over living parents, and there are fewer classes than capsules in the layers "
        "below; dyr is not"
    ),
    "mitt2023-q-no-dedicated-entity": (
        "nothing here shows that another network could have such capsules"
    ),
    "mitt2023-q-parse-trees-not-dynamic": (
        "the paper argues from dyr and dys; the distance between trees and its threshold are ours"
    ),
    "mitt2023-q-primecaps-always-active": (
        "at 0.2, the largest threshold of its row, all were active in the four seeds that were "
        "measured (record 0057d04c7c06); the weights of seed 0 were not kept, and by its mean "
        "length at least 99.4 % were (record 1cb73234a199)"
    ),
    "mitt2023-q-primecaps-not-invariant": (
        "the paper's correlation does not take off the mean, so lengths that never change much "
        "have one near 1 whatever they do; with the mean taken off it is 0.62 at rotation 20°, "
        "0.90 at shear 10°, 0.68 at scale 0.8, 0.49 at translation 4 px (record 1cb73234a199)"
    ),
    "mitt2023-q-routing-almost-static": (
        "a low dys does not tell a fixed tree from none: uniform routing has a dys of zero"
    ),
    "mitt2023-q-rba-causes-deaths": (
        "where no capsule is dead in either network, routing can have caused no death, and a "
        "difference of zero decides nothing by the rule of its row"
    ),
    "peer2022-q-gradient-cancellation": (
        "its row asks of dynamic routing; by EM routing gradients cancel as the paper supposes "
        "(records 8614f158d3dd and 81ff9846dc32)"
    ),
    "peer2022-q-relu-shields-first-layer": (
        "that the ReLU is the cause is not judged: without it a bias gains as little (records "
        "7e23f52d6cbd and d11e0e8b7766)"
    ),
    "peer2022-s41-rba-bias": (
        "of weights from N(0, 0.1²); where they are large, lengths saturate and differences shrink"
    ),
    "rem-eq-7-closed-form": (
        "the sum of agreements goes to r_T - 1, as in Algorithm 1; Eq. 7 prints r_T and Eq. 23 "
        "r_T - 2, which give other couplings"
    ),
    "rem-q-fewer-capsules-in-tree": (
        "on eleven levels an even coupling to one of 16 parents, 1/16, becomes 0.1 and leads on: "
        "even layers are in the tree as a whole"
    ),
    "rem-q-epoch1-uniform": "the level of an even split reaches from 0.05 to 0.15",
    "rem-q-k-affects-performance": (
        "on two levels all couplings are zero and every image has one answer; the accuracy that "
        "this costs is the fall that is judged"
    ),
    "rem-q-norb-saliency-less": (
        "each network has the map of the class that it says itself; the paper's reason, that "
        "smallNORB is less complex, is not judged"
    ),
    "rem-q-saliency-focus": (
        "of drawn objects amid stray parts, for photographs come without masks"
    ),
    "rem-q-still-equivariant": (
        "these pruned networks are right on 95.9 to 96.7 % of MNIST (record b616f107cd41), and the "
        "paper prints 99.56 % for its own (Table 9): whether one as accurate still draws is not "
        "judged"
    ),
    "tsai2020-text-4x-fewer": "of the networks for CIFAR-100; for CIFAR-10 it is more",
}
