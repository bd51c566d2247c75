"""Measurements by name, in eval and in dissect: those of changed images and of parts too."""

import json
import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from error_text import text_of
from torchcaps import analysis
from torchcaps.data import Cropped, PartWholeSpec, part_whole, resized, shown_parts
from torchcaps.data.shown.resize import Resized
from torchcaps.data.some import Some
from torchcaps.layers import DenseCapsules
from torchcaps.models import create_model
from torchcaps.tasks import dissect, evaluate
from torchcaps.tasks.measurements import (
    MEASUREMENTS,
    on_grid,
    parts_shown,
    routed_layers,
    seen_through,
)
from torchcaps.tasks.tables import lines_of
from torchcaps.types import Capsules, Output


@pytest.fixture(scope="module")
def few():
    return part_whole("test", 44, spec=PartWholeSpec(size=20, n_classes=3))


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    small = {"widths": "6,5", "d_pose": 4, "decoder": True}
    return create_model("mitterreiter_grid", image=(1, 20, 20), n_classes=3, **small).eval()


@pytest.fixture(scope="module")
def every(few, network):
    """All measurements, which take seconds."""
    return evaluate(network, few, measurements=[*MEASUREMENTS])


def test_every_name_is_measured_in_one_pass(every):
    assert every.measured.keys() == MEASUREMENTS.keys()
    numbers = every.numbers()["measured"]
    assert {row["factor"] for row in numbers["compactness"]["factors"]} >= {"trans-x", "shear-y"}
    assert numbers["robustness"]["changes"][0]["accuracy"] == pytest.approx(every.accuracy)
    assert numbers["fidelity"]["layer"] == "primary"
    json.dumps(every.numbers(), allow_nan=False)
    assert "robustness" in every.text()


def test_a_public_kind_of_measurement_has_a_name():
    kinds = {name for name in vars(analysis) if re.match(r"Measure[A-Z]", name)} - {"Measurement"}
    named = {"Measure" + name.title().replace("-", "") for name in MEASUREMENTS}
    assert named >= kinds


def test_every_measurement_says_a_number_in_words(every):
    found = every.measured
    for name, result in found.items():
        lines = [*lines_of(result)]
        assert re.search(r"\d", "".join(lines)), name
    assert json.loads(found["calibration"].to_json())["units"]["confidence"] == "share"


def test_dissect_takes_the_same_names(few, network, every):
    names = ["fidelity", "selectivity", "robustness"]
    found = dissect(network, few, label="small", count=40, measurements=names)
    assert [*found.measured] == names
    # Of forty-four and of forty images.
    assert every.measured["selectivity"].images == 44
    assert found.measured["selectivity"].images == 40


def test_changed_images_go_through_the_same_grid(few, network):
    plain, coarse = (
        evaluate(network, few, levels=k, measurements=["invariance"]).measured["invariance"]
        for k in (None, 2)
    )
    assert plain != coarse


def test_couplings_on_a_grid_are_put_on_no_other_grid(few, network):
    """Rounded twice they would be other keys than those of the network on that other grid."""
    names = ["keys", "inequality"]
    plain = evaluate(network, few, measurements=names).measured
    assert [each for each, *_ in plain["keys"].sweep] == [6, 11, 21, 129]
    for levels, last in ((6, 6), ((11, 21), 21)):
        found = evaluate(network, few, levels=levels, measurements=names).measured
        assert (found["keys"].levels, found["keys"].sweep) == (last, ())
        assert [row.levels for row in found["inequality"].layers] == [(), ()]


def test_replaced_couplings_are_those_of_the_network_itself(few, network, every):
    found = every.measured["causal-use"]
    whole = few.batch(slice(0, 44))
    use = analysis.causal_use(network, whole.pixels, whole.labels)
    rows = [*zip(found.couplings, use.couplings, strict=True)]
    for ours, theirs in rows:
        if ours.by in ("mean", "uniform"):
            assert ours == theirs
    assert {row.layer for row, _ in rows} == {"hidden_2", "classes", "all layers"}


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


def test_images_that_are_resized_when_they_are_shown_tell_their_parts_too(few, monkeypatch):
    expected, held = shown_parts(few.truth), resized(few, (7, 30))
    monkeypatch.setattr("torchcaps.data.shown.resize.MOST_BYTES", 1)
    lazy = resized(few, (7, 30))
    assert isinstance(lazy, Resized)
    for images in (lazy, held):
        assert torch.equal(parts_shown(images, ["fidelity"]), expected)
    index = torch.tensor([3, 1])
    assert torch.equal(parts_shown(Some(lazy, index), ["selectivity"]), expected[index])
    assert lazy.truth.size is None


def test_windows_of_images_say_that_they_may_leave_parts_out(few):
    assert text_of(lambda: parts_shown(Cropped(few, (12, 16)), ["fidelity"])) == (
        "fidelity compares capsules with the parts that images show, but these are windows of "
        "12 × 16, which may leave parts out; train and measure on whole images, stretched to that "
        "size with image_size instead of crop."
    )


def test_images_without_parts_are_told(few, network):
    assert text_of(
        lambda: evaluate(network, replace(few, truth=None), measurements=["fidelity"])
    ) == (
        "fidelity compares capsules with the parts that images show, which part-whole does not "
        "tell; take the images of part-whole."
    )


class Mixed(nn.Module):
    """Of its two `layers` one routes."""

    def __init__(self):
        super().__init__()
        classes = DenseCapsules(n_in=20, d_in=20, n_out=3, d_out=4)
        self.layers = nn.ModuleDict({"norm": nn.InstanceNorm2d(1), "classes": classes})

    def forward(self, images, *, keep="none", couple=None):
        children = Capsules(self.layers["norm"](images).squeeze(1))
        functions = couple if isinstance(couple, dict) else {"classes": couple}
        routed = self.layers["classes"](children, keep=keep, couple=functions.get("classes"))
        return Output(routed.parents.activation, "lengths")


def test_of_a_network_of_ones_own_the_routed_layers_are_those_that_route():
    """A grid was asked for with a number of levels for the normalisation too."""
    model = Mixed()
    assert routed_layers(model) == ["classes"]
    assert [*on_grid(model, (11,))] == ["classes"]
    said = text_of(lambda: on_grid(model, (11, 6)))
    assert "each of the 1 routed layers classes, but 2 came" in said
    seen_through(model, levels=(2,))(torch.rand(2, 1, 20, 20))


def test_a_layer_that_hands_on_whatever_comes_routes():
    model = create_model("mitterreiter_grid", widths="4", image=(1, 28, 28))
    model.layers["classes"] = torch.nn.DataParallel(model.layers["classes"])
    assert "classes" in routed_layers(model)


@pytest.mark.parametrize("name", ["mitterreiter_5x16", "mhsa_stack", "rem_deepcaps"])
def test_of_ours_they_are_the_layers_of_a_trace(name):
    model = create_model(name, image=(1, 28, 28)).eval()
    trace = model(torch.rand(1, 1, 28, 28), keep="last").trace
    assert routed_layers(model) == [layer.name for layer in trace]
