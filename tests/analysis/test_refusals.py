"""What measurements refuse in a sentence: settings that mean nothing."""

from functools import partial

import numpy as np
import pytest
import torch

from torchcaps import create_model
from torchcaps.analysis import (
    MeasureActivity,
    MeasureAntipodal,
    MeasureCalibration,
    MeasureCouplings,
    MeasureDynamics,
    MeasureFidelity,
    MeasureInvariance,
    MeasureKeys,
    MeasureRobustness,
    MeasureTreeDistance,
    area,
    backtracked,
    causal_use,
    gradient_cancellation,
    gradient_norms,
    measure,
)
from torchcaps.errors import TorchcapsError


def grid():
    return create_model("mitterreiter_grid", image=(1, 20, 20), n_classes=3, widths="6,5").eval()


NETWORK = grid()
PIXELS = torch.rand(4, 1, 20, 20, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 0])
LOOK = partial(NETWORK, keep="last")


def broken(capsules):
    return capsules._replace(pose=capsules.pose * torch.nan)


def in_training(name="efficient_capsnet", **options):
    """A network that learns from every batch it sees."""
    return create_model(name, image=(1, 28, 28), n_classes=3, **options)


def measured_in_training(network):
    measure(partial(network, keep="last"), [torch.rand(2, 1, 28, 28)], [MeasureKeys()])


def used_in_training():
    causal_use(in_training(), torch.rand(2, 1, 28, 28), torch.tensor([0, 1]))


REFUSED = {
    "no bins": (
        lambda: MeasureCalibration(bins=0),
        "each of bins and sweep must be a whole number from 1",
    ),
    "no histogram": (lambda: MeasureCouplings(bins=0), "bins must be a whole number from 1"),
    "half a level": (
        lambda: MeasureKeys(levels=2.5),
        "each of levels and sweep must be a whole number from 2, but came as 2.5.",
    ),
    "many pairs": (
        lambda: MeasureAntipodal(sample=6000),
        "a sample for pairs has at most 2,000 images",
    ),
    "bare thresholds": (
        lambda: MeasureDynamics(thresholds=(0.1, 0.05, 0.05)),
        "thresholds must be a Thresholds, but came as a tuple; name its numbers",
    ),
    "a number as change": (
        lambda: MeasureRobustness(LOOK, {"a": 3}),
        "changes are functions of images by their names",
    ),
    "a word as changes": (
        lambda: MeasureInvariance(LOOK, "a"),
        "changes are functions of images by their names",
    ),
    "no batches": (
        lambda: measure(LOOK, None, [MeasureKeys()]),
        "batches must be an iterable of images",
    ),
    "a word as layers": (
        lambda: causal_use(NETWORK, PIXELS, LABELS, silenced="primary"),
        "silenced is a list of layers, but came as a word; write silenced=['primary'].",
    ),
    "batches of none": (
        lambda: causal_use(NETWORK, PIXELS, LABELS, batch_size=0),
        "batch_size must be a whole number of images from 1, but came as 0.",
    ),
    "parts of others": (
        lambda: measure(
            LOOK, [(PIXELS, LABELS)], [MeasureFidelity(lambda batch: torch.ones(2, 3))]
        ),
        "the result of parts(batch) must be [4, parts], but came with shape [2, 3];",
    ),
    "image 99": (
        lambda: backtracked(LOOK(PIXELS).trace, 0, index=99),
        "the trace has 4 images, the first with index 0, and none has 99.",
    ),
    "a curve with NaN": (
        lambda: area([0, 1], [float("nan"), 1.0]),
        "a curve is made of numbers, but one of its",
    ),
    "the loss of another output": (
        lambda: gradient_norms(LOOK(PIXELS).scores.sum(), LOOK(PIXELS).trace),
        "the loss does not depend on this trace",
    ),
    "several losses": (
        lambda: gradient_norms((out := LOOK(PIXELS)).scores.sum(1), out.trace),
        "gradients are those of one number, but the loss came as [4]",
    ),
    "gradients of two shapes": (
        lambda: gradient_cancellation({"a": torch.ones(2)}, {"a": torch.ones(3)}),
        "the second gradient of a must be [2], but came with shape [3].",
    ),
    "a gradient that is NaN": (
        lambda: gradient_cancellation({"a": torch.ones(2)}, {"a": torch.tensor([1, torch.nan])}),
        "gradient a must be finite, but came with NaN",
    ),
    "a capsule that is NaN": (
        lambda: NETWORK(PIXELS, intervene={"primary": broken}),
        "the function that intervenes in layer 'primary' returned poses that are NaN",
    ),
    "training": (
        lambda: measured_in_training(in_training()),
        "CapsuleNetwork is in training mode, in which the running means of its BatchNorm2d change "
        "with every batch; call its eval() first.",
    ),
    "training of mean distances": (
        lambda: measured_in_training(in_training("gamma_capsnet")),
        "CapsuleNetwork is in training mode, in which the running means of its DistanceRouting",
    ),
    "causal use in training": (
        used_in_training,
        "CapsuleNetwork is in training mode, in which the running means of its BatchNorm2d",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_a_sentence(name):
    call, text = REFUSED[name]
    with pytest.raises(TorchcapsError) as refusal:
        call()
    assert str(refusal.value).startswith(text)


def test_numbers_of_numpy_are_kept_as_those_of_python():
    assert type(MeasureKeys(levels=np.int64(5)).levels) is int
    assert type(MeasureCalibration(bins=np.int64(5)).bins) is int
    assert type(MeasureCouplings(bins=np.int64(5)).bins) is int


def test_causal_use_leaves_a_network_as_it_was():
    network = in_training()
    before = {name: each.clone() for name, each in network.state_dict().items()}
    with pytest.raises(TorchcapsError):
        causal_use(network, torch.rand(2, 1, 28, 28), torch.tensor([0, 1]))
    assert all(torch.equal(each, before[name]) for name, each in network.state_dict().items())


def test_normalisation_that_keeps_nothing_may_be_in_training():
    network = create_model("rem_eff_norb", image=(2, 28, 28), n_classes=3)
    (found,) = measure(
        partial(network, keep="last"), [torch.rand(2, 2, 28, 28)], [MeasureActivity()]
    )
    assert found.images == 2


def test_a_sample_takes_bfloat16():
    (found,) = measure(
        lambda pixels: LOOK(pixels.float()), [(PIXELS.bfloat16(), LABELS)], [MeasureTreeDistance()]
    )
    assert found.layers
