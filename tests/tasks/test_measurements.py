"""Measurements by name, in eval and in dissect: those of changed images and of parts too."""

import json
from dataclasses import replace

import pytest
import torch

from error_text import text_of
from torchcaps.data import PartWholeSpec, part_whole, shown_parts
from torchcaps.models import create_model
from torchcaps.tasks import dissect, evaluate
from torchcaps.tasks.measurements import MEASUREMENTS, parts_shown


@pytest.fixture(scope="module")
def few():
    return part_whole("test", 44, spec=PartWholeSpec(size=20, n_classes=3))


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    small = {"widths": "6,5", "d_pose": 4, "decoder": True}
    return create_model("mitterreiter_grid", image=(1, 20, 20), n_classes=3, **small).eval()


def test_every_name_is_measured_in_one_pass(few, network):
    found = evaluate(network, few, measurements=[*MEASUREMENTS])
    assert found.measured.keys() == MEASUREMENTS.keys()
    told = found.numbers()["measured"]
    assert {row["factor"] for row in told["compactness"]["factors"]} >= {"trans-x", "shear-y"}
    assert told["robustness"]["changes"][0]["accuracy"] == pytest.approx(found.accuracy)
    assert told["fidelity"]["layer"] == "primary"
    json.dumps(found.numbers(), allow_nan=False)
    assert "robustness" in found.text()


def test_dissect_takes_the_same_names(few, network):
    names = ["fidelity", "selectivity", "robustness"]
    found = dissect(network, few, label="small", count=40, measurements=names)
    assert [*found.measured] == names
    one = evaluate(network, few, measurements=["selectivity"]).measured["selectivity"]
    # Of forty-four and of forty images.
    assert one.images == 44
    assert found.measured["selectivity"].images == 40


def test_changed_images_go_through_the_same_grid(few, network):
    plain, coarse = (
        evaluate(network, few, levels=k, measurements=["invariance"]).measured["invariance"]
        for k in (None, 2)
    )
    assert plain != coarse


def test_parts_are_shown_as_the_truth_has_them(few):
    shown = parts_shown(few, ["fidelity"])
    truth = few.truth
    for image in range(len(few)):
        for part in range(len(truth.part_names)):
            slots = (truth.part[image] == part).nonzero().flatten().tolist()
            kinds = [2 if int(truth.owner[image, slot]) == 0 else 1 for slot in slots]
            assert int(shown[image, part]) == max(kinds, default=0)
    assert torch.equal(shown, shown_parts(truth))
    assert parts_shown(few, ["activity"]) is None


def test_images_without_parts_are_told(few, network):
    assert text_of(
        lambda: evaluate(network, replace(few, truth=None), measurements=["fidelity"])
    ) == (
        "fidelity compares capsules with the parts that images show, which part-whole does not "
        "tell; take the images of part-whole, in the size in which they are made."
    )
    assert "measurement 'robustnes' is unknown; did you mean 'robustness'?" in text_of(
        lambda: evaluate(network, few, measurements=["robustnes"])
    )
