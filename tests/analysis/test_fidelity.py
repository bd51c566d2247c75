"""Fidelity: true trees have 1, exchanged and frozen ones 0."""

import math
from dataclasses import replace

import pytest
import torch

import traces
from error_text import text_of
from torchcaps.analysis import MeasureFidelity, class_paths
from torchcaps.analysis.fidelity import mutual_information, parts_of_capsules
from torchcaps.types import Output, Window

PARTS, CLASSES = 5, 4


class Images:
    """Images whose parts are known."""

    def __init__(self, n, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.pixels = torch.rand(n, 1, 2, 2, generator=generator)
        self.labels = torch.randint(CLASSES, (n,), generator=generator)
        draw = torch.rand(n, PARTS, generator=generator)
        # Absent, stray, own.
        self.parts = (draw > 0.4).long() + (draw > 0.6).long()


def fidelity(images, couplings, *, lengths=None, layer="primary", **options):
    shown = (images.parts > 0).double() * 0.8 if lengths is None else lengths
    found = MeasureFidelity(lambda b: b.parts, layer=layer, **options)
    trace = traces.network(couplings, {"primary": shown})
    found.update(Output(torch.ones(len(shown), CLASSES), "lengths", trace=trace), images)
    return found.result()


def true_tree(images):
    """Own parts go to the whole, strays to the class after it."""
    goes = torch.where(images.parts == 2, images.labels[:, None], (images.labels[:, None] + 1) % 4)
    return torch.nn.functional.one_hot(goes, CLASSES).double()


def test_true_trees_have_one():
    images = Images(400)
    found = fidelity(images, {"classes": true_tree(images)})
    assert (found.edges, found.f1) == pytest.approx((1, 1))
    assert found.undiscerning < 0.9
    assert found.tree == pytest.approx(1)
    assert found.edges_interval == pytest.approx((1, 1))
    assert found.parts == tuple(range(PARTS))
    assert (found.images, found.capsules) == (200, PARTS)


@pytest.mark.parametrize("seed", range(6))
def test_exchanged_trees_have_zero_within_the_interval(seed):
    images = Images(1000, seed)
    other = true_tree(images)[torch.randperm(1000, generator=torch.Generator().manual_seed(seed))]
    found = fidelity(images, {"classes": other})
    for value, (low, high) in (
        (found.edges, found.edges_interval),
        (found.tree, found.tree_interval),
    ):
        assert low <= 0 <= high
        assert low <= value <= high
        assert abs(value) < 0.1


@pytest.mark.parametrize("tree", ["even", "frozen"])
def test_trees_that_say_nothing_have_exactly_zero(tree):
    images = Images(200)
    couplings = traces.even(200, PARTS, CLASSES)
    if tree == "frozen":
        couplings = traces.switching(1, CLASSES, n_in=PARTS).expand(200, -1, -1)
    found = fidelity(images, {"classes": couplings})
    assert found.edges == pytest.approx(0, abs=1e-12)
    assert found.tree == pytest.approx(0, abs=1e-12)


def test_strays_that_go_to_the_whole_cost_edges_alone():
    images = Images(400)
    always = torch.nn.functional.one_hot(images.labels, CLASSES).double()
    found = fidelity(images, {"classes": always[:, None].expand(-1, PARTS, -1)})
    own, shown = (images.parts == 2).sum(), (images.parts > 0).sum()
    # About half of the images are judged; F = 2 own / (shown + own).
    assert found.f1 == pytest.approx(float(2 * own / (shown + own)), abs=0.05)
    assert 0 < found.edges < 1
    assert found.edges == pytest.approx(found.undiscerning)
    assert found.tree == pytest.approx(1)


def test_paths_are_products_of_layers():
    first, second = torch.rand(2, 5, 3), torch.rand(2, 3, 4)
    first, second = (c / c.sum(-1, keepdim=True) for c in (first.double(), second.double()))
    trace = traces.network({"hidden": first, "classes": second})
    assert torch.equal(class_paths(trace, "hidden"), second)
    torch.testing.assert_close(class_paths(trace, "primary"), first @ second)


def through_windows(images, first, second):
    """Two types at three positions, two windows of two positions with two parents each, and the
    classes above these four."""
    window = Window((1, 3, 2), (1, 2), (1, 1))
    below, middle, above = (traces.capsules(torch.full((images, n), 0.5)) for n in (6, 4, CLASSES))
    low = traces.layer("conv", below, first, middle, window=window)
    return low, traces.layer("classes", middle, second, above)


def test_paths_through_windows_are_sums_over_all_that_see_a_child():
    first = torch.rand(3, 2, 4, 2, dtype=torch.float64)
    # Type 1 of the first position leads nowhere.
    first[:, 0, 1] = 0
    second = torch.rand(3, 4, CLASSES, dtype=torch.float64)
    trace = through_windows(3, first, second)
    found = class_paths(trace, "primary")
    share = second / second.sum(-1, keepdim=True)
    for k in range(3):
        for child in range(6):
            led = torch.zeros(CLASSES, dtype=torch.float64)
            for window in range(2):
                slot = child - 2 * window
                if 0 <= slot < 4:
                    for parent in range(2):
                        coupling = 1 if child == 1 else first[k, window, slot, parent]
                        led += coupling * share[k, 2 * window + parent]
            torch.testing.assert_close(found[k, child], led / led.sum())
    torch.testing.assert_close(class_paths(trace, "conv"), share)


def test_a_child_that_no_window_sees_leads_everywhere_alike():
    low, high = through_windows(3, torch.rand(3, 1, 2, 4).double(), torch.rand(3, 4, 4).double())
    trace = replace(low, window=Window((1, 3, 2), (1, 1), (1, 3))), high
    found = class_paths(trace, "primary")
    torch.testing.assert_close(found[:, 2:], torch.full((3, 4, 4), 0.25).double())
    torch.testing.assert_close(found.sum(-1), torch.ones(3, 6).double())


def test_a_true_tree_through_windows_has_one():
    """Each part has one capsule, seen by one window of one position whose parents are the classes
    in the order of their numbers."""
    images = Images(400)
    tree = true_tree(images)
    shown = traces.capsules((images.parts > 0).double() * 0.8)
    middle, above = (traces.capsules(torch.full((400, n), 0.5)) for n in (PARTS * 4, CLASSES))
    second = torch.eye(CLASSES, dtype=torch.float64).repeat(PARTS, 1).expand(400, -1, -1)
    window = Window((1, PARTS, 1), (1, 1), (1, 1))
    low = traces.layer("conv", shown, tree[:, :, None], middle, window=window)
    trace = low, traces.layer("classes", middle, second, above)
    found = MeasureFidelity(lambda batch: batch.parts)
    found.update(Output(torch.ones(400, CLASSES), "lengths", trace=trace), images)
    assert (found.result().edges, found.result().tree) == pytest.approx((1, 1))


def test_capsules_get_the_part_that_they_tell_of():
    present = torch.rand(200, 3) > 0.5
    length = torch.stack(
        [
            present[:, 2] * 0.5 + 0.1 * torch.rand(200),
            torch.full((200,), 0.3),
            1.0 * ~present[:, 0],
        ],
        -1,
    ).double()
    found = parts_of_capsules(length, present).tolist()
    assert found[:2] == [2, -1]
    # What is long where part 0 lacks does not stand for it.
    assert found[2] != 0


def test_mutual_information_is_its_sum():
    joint = torch.rand(4, 3, dtype=torch.float64)
    joint /= joint.sum()
    rows, columns = joint.sum(1), joint.sum(0)
    expected = (joint * (joint / torch.outer(rows, columns)).log()).sum()
    assert float(mutual_information(joint)) == pytest.approx(float(expected), abs=1e-12)
    assert float(mutual_information(rows[:, None] * columns)) == 0
    assert float(mutual_information(torch.eye(2).double() / 2)) == pytest.approx(math.log(2))


def test_dead_layers_have_no_cases():
    images = Images(100)
    found = fidelity(images, {"classes": true_tree(images)}, lengths=torch.zeros(100, PARTS))
    assert (found.edges, found.tree, found.cases) == (None, None, 0)
    assert '"edges": null' in found.to_json()


def test_bad_input_is_a_sentence():
    images = Images(30)
    assert text_of(lambda: fidelity(images, {"classes": true_tree(images)})).startswith(
        "at least 40 different images are compared, but the measurement has seen 30;"
    )
    images = Images(100)
    assert text_of(
        lambda: fidelity(images, {"classes": true_tree(images)}, layer="primry")
    ).startswith("layer 'primry' has no routed layer above it; did you mean 'primary'?")


@pytest.mark.parametrize(
    ("shown", "came"),
    [
        (lambda parts: parts > 0, "torch.bool"),
        (lambda parts: parts.double(), "torch.float64"),
        (lambda parts: parts + 1, "1 to 3"),
        (lambda parts: -parts, "-2 to 0"),
    ],
)
def test_parts_that_say_no_strays_are_told(shown, came):
    """Of truth values no part is one of the whole, and every score was None."""
    images = Images(100)
    tree, lengths = true_tree(images), (images.parts > 0).double() * 0.8
    images.parts = shown(images.parts)
    assert text_of(lambda: fidelity(images, {"classes": tree}, lengths=lengths)) == (
        f"parts(batch) must say of each part 0 where an image lacks it, 1 where it is a stray, 2 "
        f"where it is one of the whole, as whole numbers, but gave {came}; where nobody knows "
        f"strays, MeasureSelectivity asks for no more than which parts are there."
    )


def test_the_sweep_has_other_lengths_of_active_capsules():
    """Long capsules have the true tree, and those of 0.2 another one."""
    images = Images(400)
    long = torch.rand(400, PARTS, generator=torch.Generator().manual_seed(3)) > 0.5
    tree = true_tree(images)
    tree = torch.where(long[..., None], tree, tree.roll(1, -1))
    lengths = (images.parts > 0) * torch.where(long, 0.6, 0.2)
    found = fidelity(images, {"classes": tree}, lengths=lengths)
    assert [row[0] for row in found.sweep] == [0.05, 0.1, 0.3, 0.5, 0.8]
    usual, exact, nothing = (found.sweep[k][1:] for k in (1, 3, 4))
    assert usual == (found.cases, found.edges, found.tree)
    assert exact[0] < found.cases
    assert exact[1:] == pytest.approx((1, 1))
    assert found.edges < 0.9
    assert nothing == (0, None, None)
    other = fidelity(images, {"classes": tree}, lengths=lengths, active=0.5)
    assert exact == (other.cases, other.edges, other.tree)
