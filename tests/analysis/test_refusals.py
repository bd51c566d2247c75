"""What measurements take that is nearly refused, and that a refusal changes nothing."""

from functools import partial

import numpy as np
import pytest
import torch

from torchcaps import create_model
from torchcaps.analysis import (
    MeasureActivity,
    MeasureCalibration,
    MeasureCouplings,
    MeasureKeys,
    MeasureTreeDistance,
    causal_use,
    measure,
)
from torchcaps.errors import TorchcapsError


def grid():
    return create_model("mitterreiter_grid", image=(1, 20, 20), n_classes=3, widths="6,5").eval()


NETWORK = grid()
PIXELS = torch.rand(4, 1, 20, 20, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 0])
LOOK = partial(NETWORK, keep="last")


def in_training(name="efficient_capsnet", **options):
    """A network that learns from every batch it sees."""
    return create_model(name, image=(1, 28, 28), n_classes=3, **options)


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
