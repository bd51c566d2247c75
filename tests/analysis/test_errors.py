"""What measurements say of what they cannot be made of or see, in errors.txt, word by word; what is
nearly refused; and that a refusal changes nothing."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils import _pytree

from error_text import cases_of, said_by
from torchcaps import analysis, create_model
from torchcaps.analysis import (
    MeasureActivity,
    MeasureCalibration,
    MeasureCouplings,
    MeasureKeys,
    MeasurePerturbation,
    MeasureRobustness,
    MeasureSelectivity,
    MeasureSeparation,
    MeasureTreeDistance,
    causal_use,
    measure,
)
from torchcaps.analysis.sample import Sample
from torchcaps.analysis.trace import last_coupling
from torchcaps.layers import Conv3dCapsules
from torchcaps.types import Capsules, LayerTrace, Output, Routed, Step, Window
from traces import capsules, even, network

ERRORS = Path(__file__).with_name("errors.txt")
ONE = network({"classes": even(3, 4, 2)})
TREE = network({"hidden": even(2, 4, 3), "classes": even(2, 3, 2)})
SIXTEEN = network({"parts": even(2, 4, 16)})
SIXTEEN = (replace(SIXTEEN[0], child_grid=(2, 2, 1)),)
PARENTS, PARTS, LABELS = ONE[0].routed.parents, torch.rand(3, 2), torch.tensor([0, 1, 2, 0])
PIXELS = torch.rand(4, 1, 20, 20)


def one(**changes):
    return (replace(ONE[0], **changes),)


def coupled(coupling):
    return Routed(PARENTS, (Step(ONE[0].children, coupling, PARENTS),))


def through_windows():
    routed = coupled(even(2, 4, 3).unsqueeze(1))
    return one(routed=routed, window=Window((2, 2, 1), (2, 2), (1, 1)))


def maps():
    """Whole maps, whose trace names capsules as their children."""
    layer = Conv3dCapsules(child_grid=(2, 2, 3), d_in=4, types=2, d_out=4)
    children = Capsules(torch.rand(2, 12, 4))
    return (LayerTrace("maps", children, layer(children, keep="last"), (2, 2, 3)),)


def batch(n, labels=0):
    labels = torch.full((n,), labels) if isinstance(labels, int) else labels
    return SimpleNamespace(pixels=torch.rand(n, 4), labels=labels)


def plain(pixels):
    """A network of somebody's own that lets nothing be replaced."""
    trace = network({"classes": even(len(pixels), 4, 3)})
    scores = 0.5 + 0 * pixels.flatten(1)[:, :3]
    return Output(scores, "lengths", trace=trace)


def posed(pixels):
    return SimpleNamespace(classes=Capsules(torch.stack([pixels, pixels], 1)))


def broken(trace):
    spoil = _pytree.tree_map_only(torch.Tensor, lambda tensor: tensor * math.nan, trace)
    return SimpleNamespace(trace=spoil)


def seen(measurement, images, **changes):
    (layer,) = network({"classes": even(images, 4, 2)})
    trace = (replace(layer, **changes),)
    measurement.update(SimpleNamespace(trace=trace), batch(images))
    measurement.result()


def read_off(measurement):
    scores = torch.eye(2, 10)
    measurement.update(Output(scores, "logits", trace=SIXTEEN), batch(2, torch.tensor([0, 1])))


def judged(change):
    measure(plain, [(PIXELS, LABELS)], [MeasureRobustness(plain, {"turned": change})])


def perturbed(seen=lambda classes, labels: classes.pose.flatten(1), draw=abs, **options):
    measurement = MeasurePerturbation(seen, draw, **options)
    out = SimpleNamespace(classes=Capsules(torch.zeros(3, 2, 2)))
    measurement.update(out, batch(3))
    measurement.result()


def separated(labels, classes=ONE[0].children):
    measurement = MeasureSeparation(lambda classes, labels: torch.rand(4, 3, 2))
    measurement.update(SimpleNamespace(classes=classes), batch(4, labels))


def selected(present):
    measurement = MeasureSelectivity(lambda batch: batch.labels)
    trace = network({"classes": even(12, 3, 2)})
    measurement.update(SimpleNamespace(trace=trace), batch(12, present))
    measurement.result()


def in_training(name="efficient_capsnet", **options):
    """A network that learns from every batch it sees."""
    return create_model(name, image=(1, 28, 28), n_classes=3, **options)


def measured_in_training(model):
    measure(partial(model, keep="last"), [torch.rand(2, 1, 28, 28)], [MeasureKeys()])


def used_in_training():
    network = in_training()
    before = {name: each.clone() for name, each in network.state_dict().items()}
    try:
        causal_use(network, torch.rand(2, 1, 28, 28), torch.tensor([0, 1]))
    finally:
        assert all(torch.equal(each, before[name]) for name, each in network.state_dict().items())


grid = create_model("mitterreiter_grid", image=(1, 20, 20), n_classes=3, widths="6,5").eval()
NAMES = vars(analysis) | globals()
NAMES |= {
    "NETWORK": grid,
    "LOOK": partial(grid, keep="last"),
    "ANSWERS": Output(torch.eye(3), "lengths", trace=ONE),
    "MAP": one(child_grid=(1, 2, 2)),
    "FACTORS": {"all": [torch.clone, torch.exp]},
    "LOSING": [torch.clone, lambda pixels: pixels[1:]],
    "spoilt": lambda capsules: capsules._replace(pose=capsules.pose * math.nan),
    "twice": lambda pixels: plain(torch.cat([pixels, pixels])),
    "capsules": capsules,
    "Sample": Sample,
    "last_coupling": last_coupling,
}
said = partial(said_by, names=NAMES)


@pytest.mark.parametrize(("call", "sentence"), cases_of(ERRORS))
def test_what_is_told(call, sentence):
    assert said(call) == sentence


def test_numbers_of_numpy_are_kept_as_those_of_python():
    assert type(MeasureKeys(levels=np.int64(5)).levels) is int
    assert type(MeasureCalibration(bins=np.int64(5)).bins) is int
    assert type(MeasureCouplings(bins=np.int64(5)).bins) is int


def test_normalisation_that_keeps_nothing_may_be_in_training():
    network = create_model("rem_eff_norb", image=(2, 28, 28), n_classes=3)
    (found,) = measure(
        partial(network, keep="last"), [torch.rand(2, 2, 28, 28)], [MeasureActivity()]
    )
    assert found.images == 2


def test_a_sample_takes_bfloat16():
    (found,) = measure(
        lambda pixels: NAMES["LOOK"](pixels.float()),
        [(PIXELS.bfloat16(), LABELS)],
        [MeasureTreeDistance()],
    )
    assert found.layers
