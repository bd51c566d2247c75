"""Votes, couplings and trees of [renzulli2025] by made records."""

from functools import partial

import pytest
import torch

from made_records import record, word_of
from tables import rows_beside
from torchcaps.data import load, part_masks
from torchcaps_claims import find_claim
from torchcaps_claims.judges import judge_statement
from torchcaps_claims.judges.renzulli import CENTRED_FOCUS, EVEN_FOCUS

CASES = rows_beside(__file__, "cases.toml")["renzulli_trees"]

word = partial(word_of, "rem-q-")

NOISE = (-0.002, -0.001, 0.0, 0.001, 0.002)
AT_HAND = ("mnist", "fashion-mnist", "cifar10")
EFFICIENT = {"mnist": "rem_eff_mnist", "fashion-mnist": "rem_eff_mnist", "cifar10": "rem_eff_cifar"}


def net(data, numbers, *, model="rem_dr", fields=(), **options):
    values = {name: [mean + n for n in NOISE] for name, mean in numbers.items()}
    if (model, data) == ("rem_dr", "cifar10"):
        options["types"] = 64
    return record(model, data, values=values, fields=fields, **options)


LOBSTER = {"prune": "lobster", "epochs": 10}.items()


def pruned(data, numbers, **options):
    return net(data, numbers, fields=LOBSTER, **options)


def votes(zero, entropy, *, last=None):
    """All four families on three sets: zero blocks and entropy of pruned ones, 8 bits before; the
    last of all may be another."""
    records = []
    for data in AT_HAND:
        for model in ("rem_gamma", "rem_deepcaps", EFFICIENT[data], "rem_dr"):
            grid = "+K11,6" if model == "rem_gamma" else "+K11"
            is_last = (model, data) == ("rem_dr", "cifar10")
            blocks, after = last if last and is_last else (zero, entropy)
            numbers = {f"zero_blocks{grid}": blocks, f"entropy{grid}": after, "sparsity": 87.0}
            records.append(net(data, {f"entropy{grid}": 8.0}, model=model))
            records.append(pruned(data, numbers, model=model))
    return records


@pytest.mark.parametrize(("last", "expected"), CASES["pruning_makes_whole_votes_zero"])
def test_pruning_makes_whole_votes_zero(last, expected):
    records = votes(0.2, 6.0, last=last)
    assert word("pruning-zeroes-whole-votes", *records) == expected
    # One cell can contradict it, and all are needed to confirm it.
    alone = expected if expected == "fails" else None
    assert word("pruning-zeroes-whole-votes", *records[2:]) == alone


def test_every_epoch_of_a_pruned_run_counts_its_zero_blocks():
    def of(last, sparsity=87.0):
        curves = {"zero_blocks/classes": [(0.5, last)] * 5}
        return pruned("mnist", {"entropy+K11": 6.0, "sparsity": sparsity}, curves=curves)

    dense = net("mnist", {"entropy+K11": 8.0})
    assert word("pruning-zeroes-whole-votes", dense, of(0.0)) == "fails"
    assert word("pruning-zeroes-whole-votes", dense, of(0.5)) is None
    # Within two points of the 85.53 % that the paper prints on MNIST, and not.
    assert word("pruning-zeroes-whole-votes", dense, of(0.0, 83.6)) == "fails"
    assert word("pruning-zeroes-whole-votes", dense, of(0.0, 83.5)) == "undecided"


@pytest.mark.parametrize("zero", [0.0, 0.05])
def test_too_few_zero_blocks_of_a_smaller_form_lean_nowhere(zero):
    """Fewer than a tenth, with a lower entropy."""
    smaller = [each.model_copy(update={"reduced": "few"}) for each in votes(zero, 6.0)]
    found = judge_statement(find_claim("rem-q-pruning-zeroes-whole-votes"), smaller)
    assert found.leaning("smaller").word == "undecided"


def rising(data, trained, fixed):
    """Networks of one to ten iterations, and of the last of them the couplings step by step."""
    made = []
    for t in range(1, 11):
        steps = {f"polarisation.1.{k}": fixed * k for k in range(1, t + 1)}
        made.append(net(data, {"polarisation": trained * t, **steps}, iterations=t))
    return made


@pytest.mark.parametrize(
    ("trained", "fixed", "expected"),
    [(0.05, 0.05, "holds"), (-0.05, 0.05, "fails"), (0.05, -0.05, "fails")],
)
def test_iterations_polarise_couplings(trained, fixed, expected):
    first, last = rising("mnist", 0.05, 0.05), rising("cifar10", trained, fixed)
    assert word("iterations-polarise", *first, *last) == expected
    assert word("iterations-polarise", *first, *last[:-1]) is None


@pytest.mark.parametrize(("after", "expected"), [(9.0, "holds"), (11.0, "fails")])
def test_pruned_trees_have_fewer_capsules(after, expected):
    def both(data, after, right=70.0):
        dense = net(data, {"accuracy": 70.0, "tree_size+K11": 10.0}, model="rem_multilayer")
        numbers = {"accuracy": right, "tree_size+K11": after}
        return dense, pruned(data, numbers, model="rem_multilayer")

    records = [*both("fashion-mnist", 9.0), *both("cifar10", after)]
    assert word("fewer-capsules-in-tree", *records) == expected
    # One that guesses has no tree to look at.
    guessing = [*both("fashion-mnist", 9.0), *both("cifar10", after, right=10.0)]
    assert word("fewer-capsules-in-tree", *guessing) == "undecided"
    assert word("fewer-capsules-in-tree", *records[:3]) is None


@pytest.mark.parametrize(
    ("accuracy", "entropy", "expected"),
    CASES["new_viewpoints_cost_little_accuracy_and_entropy_falls"],
)
def test_new_viewpoints_cost_little_accuracy_and_entropy_falls(accuracy, entropy, expected):
    def both(axis, accuracy, entropy):
        numbers = {"accuracy+K11": accuracy, "entropy+K11": entropy}
        data, model = f"smallnorb-{axis}", "rem_eff_norb"
        dense = net(data, {"accuracy+K11": 90.0, "entropy+K11": 8.0}, model=model)
        return dense, pruned(data, numbers, model=model)

    records = [*both("elevation", 89.9, 7.0), *both("azimuth", accuracy, entropy)]
    assert word("rem-novel-viewpoint", *records) == expected
    assert word("rem-novel-viewpoint", *records[:3]) is None


@pytest.mark.parametrize("share", [0.8, 0.2, 0.55])
def test_that_a_pruned_network_draws_shows_nothing_without_a_control(share):
    values = {"drawn_components": [share + step for step in (-0.1, -0.05, 0, 0.05, 0.1)]}
    rem = record("rem_dr", "mnist", values=values, fields=LOBSTER)
    found = judge_statement(find_claim("rem-q-still-equivariant"), [rem])
    assert (found.word, found.leaning().word) == ("undecided", "undecided")
    assert found.open_because.startswith("no control was looked at")
    some = {**values, "drawn_known": [1, 1, 1, 1, 0]}
    diverges = record("rem_dr", "mnist", values=some, fields=LOBSTER)
    assert word("still-equivariant", diverges) == "undecided"
    # The unpruned network is shown beside it and judged by nobody.
    assert word("still-equivariant", record("rem_dr", "mnist", values=values)) is None


def test_saliency_that_lies_less_on_the_object_than_a_blur_at_the_centre_focuses_on_nothing():
    """0.077 before and 0.107 after pruning, where the object has 0.078 of the area."""

    def of(share, **fields):
        values = {"focus+K21": [share + x / 1000 for x in (-2, -1, 0, 1, 2)]}
        return record("rem_effconv", "part-whole", values=values, fields=fields.items())

    rem = of(0.107, prune="lobster", epochs=10)
    found = judge_statement(find_claim("rem-q-saliency-focus"), [of(0.077), rem])
    assert (found.word, found.leaning().word) == ("undecided", "undecided")
    assert found.open_because == (
        "a blur at the centre of every image has 0.13 on the object, and the maps of pruned "
        "networks have less"
    )


@pytest.mark.slow
def test_how_much_a_map_that_is_even_or_a_blur_has_on_the_object():
    images = load("part-whole", split="test")
    truth, (y, x) = images.truth, torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    blur = torch.exp(-((x - 15.5) ** 2 + (y - 15.5) ** 2) / 200)
    even, centred = [], []
    for part in torch.arange(len(images)).split(100):
        of_whole = (truth.owner[part] == 0)[:, :, None, None]
        masks = (part_masks(truth, part) & of_whole).any(1)
        even.append(masks.double().mean((1, 2)))
        centred.append((masks * blur).double().sum((1, 2)) / blur.sum())
    assert torch.cat(even).mean().item() == pytest.approx(EVEN_FOCUS, abs=5e-5)
    assert torch.cat(centred).mean().item() == pytest.approx(CENTRED_FOCUS, abs=5e-5)


@pytest.mark.parametrize(
    ("fine", "word_of_it"), [(95.0, "undecided"), (96.4, "holds"), (94.0, "undecided")]
)
def test_levels_matter_by_the_finest_and_the_coarsest_grid(fine, word_of_it):
    """Not by the least accuracy of all levels, which no grid can be below."""
    noise = (-0.02, -0.01, 0.0, 0.01, 0.02)
    values = {"accuracy+K2": [10.0] * 5}
    for level, right, entropy in ((3, 95.0, 1.0), (129, fine, 9.0)):
        values[f"accuracy+K{level}"] = [right + (1 + level / 129) * x for x in noise]
        values[f"entropy+K{level}"] = [entropy + (1 + level / 129) * x for x in noise]
    assert word("k-affects-performance", record("rem_dr", "mnist", values=values)) == word_of_it


@pytest.mark.parametrize(
    ("gain", "expected"), [(0.1, "holds"), (-0.1, "fails"), (0.0, "undecided")]
)
def test_saliency_lies_more_on_the_object_of_the_same_seed(gain, expected):
    def of(shares, **fields):
        return record(
            "rem_effconv", "part-whole", values={"focus+K21": shares}, fields=fields.items()
        )

    noise, other = (-0.02, -0.01, 0.0, 0.01, 0.02), (-0.01, 0.0, 0.02, -0.02, 0.01)
    whole = of([0.4 + step for step in noise])
    rem = of([0.4 + gain + step for step in other], prune="lobster", epochs=10)
    assert word("saliency-focus", whole, rem) == expected
    assert word("saliency-focus", whole) is None


@pytest.mark.parametrize(
    ("moved", "expected"), CASES["saliency_moves_less_on_norb_than_on_both_others"]
)
def test_saliency_moves_less_on_norb_than_on_both_others(moved, expected):
    means = {"fashion-mnist": 0.5, "cifar10": 0.6} | moved
    means |= {"smallnorb-elevation": 0.3, "smallnorb-azimuth": 0.2}
    # Seeds are paired: other noise than that of the set it is compared with.
    other = dict.fromkeys(("fashion-mnist", "cifar10"), (0.01, -0.02, 0.02, 0.0, -0.01))
    records = []
    for data, mean in means.items():
        values = [mean + noise for noise in other.get(data, (-0.02, -0.01, 0.0, 0.01, 0.02))]
        records.append(net(data, {"saliency+K11": 0.9}))
        types = {"types": 64} if data == "cifar10" else {}
        moves = {"saliency+K11": values}
        records.append(record("rem_dr", data, values=moves, fields=LOBSTER, **types))
    assert word("norb-saliency-less", *records) == expected
    # Both axes are asked for, and both other sets.
    assert word("norb-saliency-less", *records[:-2]) in (None, "fails")
    # Unpruned networks are moved by nothing.
    assert word("norb-saliency-less", *records[::2]) is None
