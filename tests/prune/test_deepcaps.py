"""DeepCaps is no chain: its types are sums of two convolutions, and two may read them."""

import copy
from collections import Counter
from functools import cache

import pytest
import torch

from torchcaps import create_model
from torchcaps.prune import MaskAtTheEnd, prunable, sparsity, units

# 18 × 16 – 9 × 8 – 5 × 4 – 3 × 2 – 2 × 1: two positions of 32 types in cell 4, six in cell 3.
IMAGE = (1, 18, 16)
N_4, POSITIONS_3 = 2 * 32, 6
CHILDREN = N_4 + POSITIONS_3 * 32

# By the convolution that makes them: how many weights a unit has, by hand. A type of cell 1 has
# 4 channels, of the others 8.
#   halved: its kernels, and its columns in the two that read it.
#   residual.0: its kernels, and its columns in the one that reads it.
#   residual.1: its kernels and those of the skip, and its columns in the cell above; of cell 3 also
#   its matrices to ten classes of 32 components, at six positions.
SIZES = {
    "backbone.0.0": 9 + 9 * 128,
    "backbone.1.halved.projection": 4 * 9 * (128 + 2 * 128),
    "backbone.1.residual.0.projection": 4 * 9 * (128 + 128),
    "backbone.1.residual.1.projection": 4 * 9 * (2 * 128 + 256),
    "backbone.2.halved.projection": 8 * 9 * (128 + 2 * 256),
    "backbone.2.residual.0.projection": 8 * 9 * (256 + 256),
    "backbone.2.residual.1.projection": 8 * 9 * (2 * 256 + 256),
    "backbone.3.halved.projection": 8 * 9 * (256 + 2 * 256),
    "backbone.3.residual.0.projection": 8 * 9 * (256 + 256),
    "backbone.3.residual.1.projection": 8 * 9 * (2 * 256 + 256) + 6 * 10 * 32 * 8,
    "residual.0.projection": 8 * 9 * (256 + 256),
}


def network(routing="dynamic"):
    return copy.deepcopy(made(routing))


@cache
def made(routing):
    """A network whose class lengths are far from zero and differ."""
    torch.manual_seed(0)
    model = create_model("rem_deepcaps", image=IMAGE, routing=routing)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight *= 4 if name.endswith("projection.weight") else 1
    model(torch.rand(8, *IMAGE))  # batch norm meets an image
    return model.eval()


def of(model, name):
    """The units of one run."""
    every = (*units(model, "channel"), *units(model, "type"))
    return [unit for unit in every if unit.name.endswith(f" of {name}")]


def test_types_that_start_smaller_do_not_go_first_layer_by_layer():
    """Cells begin with weights of other sizes, so one threshold takes nearly all types of some."""
    kept = {}
    for scope in ("network", "layer"):
        torch.manual_seed(0)
        model = create_model("rem_deepcaps", image=IMAGE)
        MaskAtTheEnd(model, to=0.6, unit="type", scope=scope).at_the_end()
        assert 0.59 < sparsity(model).share <= 0.6
        weights = prunable(model)
        left = Counter(
            unit.layer
            for unit in units(model, "type")
            if any(bool(part.of(weights[part.weight]).any()) for part in unit.parts)
        )
        kept[scope] = [left[unit.layer] for unit in units(model, "type")[::32]]
    # Of 32 types a kind.
    assert max(kept["network"]) == 32, kept
    assert min(kept["network"]) < 8, kept
    assert max(kept["layer"]) - min(kept["layer"]) <= 1, kept


def test_its_units():
    model = network()
    assert len(units(model, "channel")) == 128
    # Three kinds in each of the cells 1 to 3, and the middle of the residual way of cell 4.
    assert len(units(model, "type")) == 10 * 32
    assert len(units(model, "capsule")) == CHILDREN
    unit = of(model, "backbone.3.residual.1.projection")[5]
    channels = tuple(range(40, 48))
    assert unit == (
        "type 5 of backbone.3.residual.1.projection",
        (
            ("backbone.3.residual.1.projection.weight", 0, channels),
            ("backbone.3.skip.projection.weight", 0, channels),
            ("halved.projection.weight", 1, channels),
            ("layers.classes.weight", 0, tuple(range(N_4 + 5, CHILDREN, 32))),
        ),
        "backbone.3.residual.1.projection",
    )


@pytest.mark.parametrize("name", SIZES)
def test_a_unit_is_all_that_makes_and_reads_it(name):
    model = network()
    weights = prunable(model)
    (size,) = {
        sum(part.of(weights[part.weight]).numel() for part in unit.parts)
        for unit in of(model, name)
    }
    assert size == SIZES[name]
