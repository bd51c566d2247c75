"""Printed numbers that contradict each other or a sentence: what four pages of findings say,
computed from claims/. A number that changes there makes its line of the page false."""

import math
from collections import Counter
from pathlib import Path

import pytest
import torch

from on_meta import count, size
from tables import cases_beside, worked_out
from torchcaps.layers.backbone import resnet_backbone
from torchcaps_claims import claims, find_claim
from torchcaps_claims.sizes import REASONS, parameters_of

FOLDER = Path(__file__).parents[2] / "claims" / "pages" / "findings"


def page(name):
    return " ".join((FOLDER / f"{name}.md").read_text(encoding="utf-8").split())


def values(*names):
    return [find_claim(name).value for name in names]


def spread(name):
    claim = find_claim(name)
    return f"{claim.value:.2f} ± {claim.std:.2f}"


def of_table_1(way, metric="acc"):
    """Of every row of [renzulli2025] Table 1, in its order."""
    rows = [
        claim.id.removesuffix("-vanilla-acc")
        for claim in claims(paper="renzulli2025")
        if claim.table == 1 and claim.id.endswith("-vanilla-acc")
    ]
    return {row: find_claim(f"{row}-{way}-{metric}").value for row in rows}


@pytest.mark.parametrize("case", cases_beside(__file__, "sentences.toml"))
def test_a_sentence_that_a_number_contradicts(case):
    found = {name: find_claim(each).value for name, each in case["claims"].items()}
    assert worked_out(case["is_true"], found)
    assert case["says"].format(**found) in page("tables-against-text")


def test_what_a_kernel_of_seven_gains():
    k3, k7, caps_3, caps_7 = values(
        *(f"gu2021-t3-{name}-k{k}-aff" for name in ("convnet-fc", "capsnet") for k in (3, 7))
    )
    says = f"ConvNet-FC gains {k7 - k3:.2f} points and CapsNet {caps_7 - caps_3:.2f}"
    assert says in page("tables-against-text")


def test_two_entropies_alike_in_mean_and_spread():
    entropies = [
        claim for claim in claims(paper="renzulli2025") if claim.kind == "entropy" and claim.std
    ]
    alike = Counter((claim.value, claim.std) for claim in entropies)
    (one,) = (
        pair
        for pair, n in alike.items()
        # Table 12 prints a row of Table 1 again.
        if n > 1 and not any(c.table == 12 and (c.value, c.std) == pair for c in entropies)
    )
    first, second = (c for c in entropies if (c.value, c.std) == one)
    assert (first.table, first.dataset, second.table, second.dataset) == (
        1,
        "F-MNIST",
        2,
        "affNIST",
    )
    text = page("doubtful-numbers")
    assert f"{spread(first.id)} on Fashion-MNIST (Table 1)" in text
    assert f"Of {len(entropies)} entropies with a spread" in text


def test_an_accuracy_that_is_a_sparsity():
    accuracy, sparsity = of_table_1("rem"), of_table_1("rem", "sparsity")
    (row,) = (each for each in accuracy if accuracy[each] == sparsity[each])
    assert row == "rem-t1-cifar-10-gamma-capsnet"
    says = f"accuracy {accuracy[row]:.2f} % and sparsity {accuracy[row]:.2f} %"
    assert says in page("doubtful-numbers")


def test_what_rounding_and_pruning_gain():
    text = page("doubtful-numbers")
    vanilla, rounded, pruned = (of_table_1(way) for way in ("vanilla", "q", "rem"))
    gains = {row: round(rounded[row] - vanilla[row], 2) for row in vanilla}
    gain = gains.pop(cats := "rem-t1-dogs-vs-cats-eff-convcapsnet")
    assert max(gains.values()) < 0 < gain
    assert (
        f"{spread(f'{cats}-vanilla-acc')} before rounding and {spread(f'{cats}-q-acc')} after"
    ) in text
    lost = f"costs {-max(gains.values()):.2f} to {-min(gains.values()):.2f} points"
    assert f"{lost} in the other {len(gains)} rows, and gains {gain:.2f} in this one" in text

    deep = "rem-t1-f-mnist-deepcaps"
    gains = {row: round(pruned[row] - vanilla[row], 2) for row in vanilla if row != cats}
    assert gains[deep] == max(gains.values())
    both = f"{spread(f'{deep}-vanilla-acc')} without REM, {spread(f'{deep}-rem-acc')} with it"
    assert both in text
    rest = [value for row, value in gains.items() if row != deep]
    assert f"a gain of {gains[deep]:.2f}, where others have {min(rest):.2f} to {max(rest):.2f}" in (
        text.replace("−", "-")
    )


def test_a_spread_of_three_decimals():
    stds = {claim.id: claim.std for claim in claims(paper="renzulli2025") if claim.std is not None}
    (odd,) = (name for name, std in stds.items() if round(std, 2) != std)
    assert odd == "rem-t5-gamma-capsnet-rem-azimuth-novel-acc"
    text = page("doubtful-numbers")
    assert f"{find_claim(odd).value:.2f} ± {stds[odd]:.3f}" in text
    column = [
        std for name, std in stds.items() if name.startswith("rem-t5-") and "novel-acc" in name
    ]
    least = min(std for std in column if std != stds[odd])
    assert f"those of its column are {least:.2f} or more" in text


def test_a_training_accuracy_printed_twice():
    nor, none, test_nor, test_none = values(
        *(
            f"gu2021-t4-{row}-{part}"
            for part in ("train", "test")
            for row in ("routing-nor", "recon-none")
        )
    )
    assert nor == none
    assert test_nor != test_none
    text = page("doubtful-numbers")
    assert (
        f"without routing {nor:.2f} %, and of the one without reconstruction {none:.2f} %" in text
    )
    assert f"{test_nor:.2f} and {test_none:.2f} % of the test pairs" in text


@pytest.mark.parametrize("layer", [1, 2, 3, 4, 5])
def test_a_sum_over_a_layer_has_its_spread_too(layer):
    """[mitterreiter2023] Table 2: cas is n · car of every network, so its deviation is n times
    that of car, up to the digits that are printed."""
    n = 10 if layer == 5 else 16
    car, cas = (find_claim(f"mitt2023-t2-layer{layer}-{name}") for name in ("car", "cas"))
    half = 0.005
    assert abs(cas.value - n * car.value) <= (n + 1) * half
    fits = n * (car.std - half) - half <= cas.std <= n * (car.std + half) + half
    assert fits == (layer != 5)
    if layer == 5:
        text = page("doubtful-numbers")
        assert f"car {spread(car.id)}, cas {spread(cas.id)}" in text
        low, high = n * (car.std - half), n * (car.std + half)
        assert f"lies between {low:.2f} and {high:.2f}" in text


def keys(data, way):
    return values(*(f"rem-t11-{data}-{way}-class{digit}" for digit in range(10)))


def bound(numbers):
    """The mean entropy of classes that each have so many keys, all equally frequent."""
    return sum(math.log2(n) for n in numbers) / len(numbers)


def test_affnist_has_more_keys_than_mnist_has_images():
    found = keys("affnist", "q")
    assert min(found) > 1000
    assert sum(found) > max(found) > 10_000
    text = page("more-trees-than-images")
    assert f"{max(found):,} keys for class {found.index(max(found))}" in text
    assert f"{sum(found):,} for the ten classes" in text


def test_entropies_on_affnist_and_on_mnist():
    text = page("more-trees-than-images")
    affnist, mnist = values(
        "rem-t2-dr-capsnet-q-well-affnist-entropy", "rem-t9-dr-capsnet-q-entropy"
    )
    small, large = (math.log2(images / 10) for images in (10_000, 320_000))
    assert f"log₂ 1,000 = {small:.2f} bit" in text
    assert f"log₂ 32,000 = {large:.2f}" in text
    assert f"{mnist:.2f} bit on MNIST are {100 * mnist / small:.0f} % of the most" in text
    assert f"{affnist:.2f} on affNIST {100 * affnist / large:.0f} %" in text


TABLE_11 = {
    ("f-mnist", "q"): "rem-t1-f-mnist-dr-capsnet-q-entropy",
    ("f-mnist", "rem"): "rem-t1-f-mnist-dr-capsnet-rem-entropy",
    ("svhn", "q"): "rem-t1-svhn-dr-capsnet-q-entropy",
    ("svhn", "rem"): "rem-t1-svhn-dr-capsnet-rem-entropy",
    ("cifar-10", "q"): "rem-t1-cifar-10-dr-capsnet-q-entropy",
    ("cifar-10", "rem"): "rem-t1-cifar-10-dr-capsnet-rem-entropy",
    ("affnist", "q"): "rem-t2-dr-capsnet-q-well-affnist-entropy",
    ("affnist", "rem"): "rem-t2-dr-capsnet-rem-well-affnist-entropy",
}


@pytest.mark.parametrize(("data", "way"), TABLE_11)
def test_entropies_are_below_what_their_keys_allow(data, way):
    (entropy,) = values(TABLE_11[data, way])
    assert entropy < bound(keys(data, way))


def test_the_keys_of_affnist_are_those_of_the_network_that_was_trained_to_its_end():
    (early,) = values("rem-t2-dr-capsnet-rem-under-affnist-entropy")
    most = bound(keys("affnist", "rem"))
    assert early > most
    assert f"allow {most:.2f} bit, and {early:.2f} are printed" in page("more-trees-than-images")


# How often each digit is there among the 26,032 test images of SVHN.
SVHN = (1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595)


def largest_deviation(mean, most, n=5):
    """Of n numbers that have this mean, none above `most`: all but one of them are there."""
    return math.sqrt(n) * (most - mean)


def test_the_largest_deviation_of_numbers_below_a_bound():
    draw = torch.Generator().manual_seed(0)
    below = torch.rand(2000, 5, generator=draw, dtype=torch.float64) ** 8
    most = math.sqrt(5) * below.mean(1)
    assert (below.std(1) <= most + 1e-12).all()
    one = torch.tensor([0.0, 0, 0, 0, 1], dtype=torch.float64)
    assert one.std().item() == pytest.approx(math.sqrt(5) * one.mean().item())


def test_the_entropy_of_deepcaps_on_svhn_varies_too_much():
    claim = find_claim("rem-t1-svhn-deepcaps-q-entropy")
    assert sum(SVHN) == 26_032
    even, as_they_are = math.log2(26_032 / 10), bound(SVHN)
    text = page("more-trees-than-images")
    assert f"{spread(claim.id)} bit" in text
    most = [largest_deviation(claim.value, each) for each in (even, as_they_are)]
    assert most[1] < claim.std - 0.1 < claim.std < most[0]
    assert f"{even:.2f} bit, however often each class is named" in text
    assert f"by √5 (B − m), here {most[0]:.2f}" in text
    assert f"the bound is {as_they_are:.2f} and the deviation {most[1]:.2f} at most" in text


def test_how_many_sizes_are_met():
    """The tests of sizes hold that those without a reason are met."""
    sizes = [claim for claim in claims() if claim.kind == "params"]
    counted = [c for c in sizes if not c.needs_trained and c.configuration is None]
    says = f"Of {len(sizes)} printed sizes {len(counted)} can be counted"
    assert f"{says}, and {len(counted) - len(REASONS)} are met in every digit" in page("sizes")


def test_the_layers_of_convnet_avg_have_no_size_of_1_70():
    text = page("sizes")
    for kernel in (3, 5, 7, 9, 11):
        count = parameters_of("convnet_avg", kernel)
        assert count == 65_792 * kernel**2 + 3_082
        assert f"{count:,}" in text
    assert "65,792 k² + 3,082" in text
    (printed,) = values("gu2021-t3-convnet-avg-k5-params")
    assert f"{printed:.2f}M" in text
    assert abs(printed * 1e6 - parameters_of("convnet_avg", 5)) > 5e4


def test_pruned_sizes_are_what_their_sparsity_leaves_but_for_one():
    text = page("sizes")
    for name, model, digits in (
        ("dr-capsnet", "rem_dr", 1),
        ("gamma-capsnet", "rem_gamma", 1),
        ("deepcaps", "rem_deepcaps", 1),
        ("eff-capsnet", "rem_eff_mnist", 3),
    ):
        sparsity, printed = values(f"rem-t9-{name}-rem-sparsity", f"rem-t9-{name}-rem-params")
        left = parameters_of(model) * (1 - sparsity / 100)
        assert (round(left / 1e6, digits) == printed) == (name != "dr-capsnet")
        if name == "dr-capsnet":
            says = f"{parameters_of(model):,} · (1 − {sparsity / 100:.4f}) = {left:,.0f}"
            assert f"{says}, and 0.9M is printed" in text
            assert printed == 0.9


def test_what_the_text_makes_of_dynamic_routing_on_a_residual_backbone():
    """[tsai2020] A.1: 16 x 16 x 128 out of the backbone, then Table 4 from its second row on."""
    with torch.device("meta"):
        backbone = resnet_backbone(3, width=128)
        primary = torch.nn.Conv2d(128, 256, 9, stride=2)
        _, channels, height, width = primary(backbone(torch.empty(1, 3, 32, 32))).shape
    children = channels * height * width // 8
    found = size(backbone) + size(primary) + children * 10 * 8 * 16
    (printed,) = values("tsai2020-t1-dynamic-routing-resnet-cifar-10-params")
    text = page("sizes")
    assert f"makes {children} primary capsules and {found:,} parameters; {printed}M" in text
    ours = parameters_of("tsai_dynamic_resnet_c10")
    assert round(ours / 1e6, 2) == printed
    assert f"{ours:,}" in text


def test_em_routing_shares_the_matrices_of_its_classes():
    (printed,) = values("tsai2020-t1-em-routing-simple-cifar-10-params")
    shared = parameters_of("tsai_em_simple_c10")
    own = shared + (800 - 32) * 10 * 16
    assert [round(count / 1e6, 2) == printed for count in (shared, own)] == [True, False]
    says = f"there are {own:,} parameters, and {printed}M are printed, which {shared:,} meet"
    assert says in page("sizes")


def test_pairs_of_digits_have_one_channel():
    (printed,) = values("tsai2020-f5-cnn-fc-params")
    text = page("sizes")
    for channels in (1, 3):
        found = count("tsai_dmm_cnn_fcpool", image=(channels, 36, 36))
        assert (round(found / 1e6, 2) == printed) == (channels == 1)
        assert f"{found:,}" in text
