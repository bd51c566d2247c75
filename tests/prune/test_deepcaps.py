"""DeepCaps is no chain: its types are sums of two convolutions, and two may read them."""

import copy
from collections import Counter
from functools import cache

import pytest
import torch

from torchcaps import create_model, load, save
from torchcaps.models.smaller import smaller
from torchcaps.prune import MaskAtTheEnd, prunable, removable, silent, sparsity, units

# 18 × 16 – 9 × 8 – 5 × 4 – 3 × 2 – 2 × 1: two positions of 32 types in cell 4, six in cell 3.
IMAGE = (1, 18, 16)
N_4, POSITIONS_3 = 2 * 32, 6
CHILDREN = N_4 + POSITIONS_3 * 32

# By the convolution that makes them: how many parameters a unit has, by hand. A type of cell 1 has
# 4 channels, of the others 8; a channel of the stem has a bias and two numbers of its batch norm.
#   halved: its kernels, and its columns in the two that read it.
#   residual.0: its kernels, and its columns in the one that reads it.
#   residual.1: its kernels and those of the skip, and its columns in the cell above; of cell 3 also
#   its matrices to ten classes of 32 components, at six positions.
SIZES = {
    "backbone.0.0": 9 + 1 + 2 + 9 * 128,
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


def scores(model, images):
    with torch.no_grad():
        return model(images, keep="last").scores


def size(model):
    return sum(parameter.numel() for parameter in model.parameters())


def of(model, name):
    """The units of one run."""
    every = (*units(model, "channel"), *units(model, "type"))
    return [unit for unit in every if unit.name.endswith(f" of {name}")]


def zero(model, parts):
    with torch.no_grad():
        for name, axis, rows in parts:
            prunable(model)[name].index_fill_(axis, torch.tensor(rows), 0)


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
def test_what_nothing_reads_is_taken_out_and_no_score_changes(name):
    model = network()
    images = torch.rand(4, *IMAGE)
    whole = scores(model, images)
    gone = (2, 7, 31)
    for unit in (of(model, name)[k] for k in gone):
        zero(model, unit.parts)
    kept = removable(model)
    every = range(len(of(model, name)))
    assert kept.channels == {name: tuple(k for k in every if k not in gone)}
    small = smaller(model, kept)
    # Units of one run share no weight.
    assert size(model) - size(small) == 3 * SIZES[name]
    expected = scores(model, images)
    assert torch.allclose(scores(small, images), expected, rtol=0, atol=1e-6)
    # Nor is that for want of a difference.
    assert (expected - whole).abs().max() > 1e-3


def test_all_runs_at_once(tmp_path):
    model = network()
    for name in SIZES:
        for k in (1, 3, 5):
            zero(model, of(model, name)[k].parts)
    small = smaller(model, removable(model))
    images = torch.rand(4, *IMAGE)
    assert torch.allclose(scores(small, images), scores(model, images), rtol=0, atol=1e-6)
    save(small, tmp_path / "small.safetensors")
    again = load(tmp_path / "small.safetensors")
    assert torch.equal(scores(again, images), scores(small, images))
    assert removable(again).channels == {}
    assert size(again) < 0.9 * size(model)


def test_a_type_that_one_way_still_makes_or_reads_stays():
    model = network()
    name = "backbone.2.halved.projection"
    made, first, second = of(model, name)[4].parts
    zero(model, [first])
    assert removable(model).channels == {}
    zero(model, [second])
    assert len(removable(model).channels[name]) == 31
    # Without a bias and a norm, zero kernels make zeros.
    model = network()
    zero(model, [made])
    assert removable(model).channels[name] == (*range(4), *range(5, 32))
    # In the stem there are both.
    model = network()
    stem = of(model, "backbone.0.0")[4]
    zero(model, stem.parts[:1])
    with torch.no_grad():
        model.backbone[0][0].bias[4] = 0
    assert removable(model).channels == {}
    # A sum of which one half is zero is not silent.
    model = network()
    name = "backbone.2.residual.1.projection"
    residual, skip, _ = of(model, name)[4].parts
    zero(model, [residual])
    # Some channels of the stem are silent from the start.
    assert name not in removable(model, silent(model, [torch.rand(8, *IMAGE)])).channels
    zero(model, [skip])
    assert 4 not in removable(model).channels[name]
    small = smaller(model, removable(model))
    images = torch.rand(4, *IMAGE)
    assert torch.allclose(scores(small, images), scores(model, images), rtol=0, atol=1e-6)


def test_types_that_are_short_on_all_images_are_silent():
    model = network()
    images = torch.rand(8, *IMAGE)
    name = "backbone.2.residual.0.projection"
    with torch.no_grad():
        # A squash takes a small length to its square: some 1e-6 here.
        model.backbone[2].residual[0].projection.weight[16:24] *= 1e-3
    seen = silent(model.train(), [images])
    assert model.training
    model.eval()
    assert name not in removable(model, seen).channels
    kept = removable(model, seen, below=0.01)
    assert 2 not in kept.channels[name]
    # By hand: the lengths where they are read.
    read = []
    hook = model.backbone[2].residual[1].register_forward_pre_hook(lambda _, x: read.append(x[0]))
    scores(model, images)
    hook.remove()
    lengths = read[0].unflatten(1, (32, 8)).square().sum(2).sqrt().amax((0, 2, 3))
    assert torch.allclose(seen.channels[name], lengths)
    assert kept.channels[name] == tuple((lengths > 0.01).nonzero().flatten().tolist())


def test_children_stay_where_votes_of_zero_count():
    name = "backbone.3.residual.1.projection"
    for routing, left in (("dynamic", 31), ("uniform", 31), ("em", None)):
        model = network(routing)
        zero(model, of(model, name)[0].parts)
        assert len(removable(model).channels.get(name, ())) == (left or 0), routing


def test_nothing_of_a_run_is_left_but_one():
    model = network()
    name = "residual.0.projection"
    for unit in of(model, name):
        zero(model, unit.parts)
    assert removable(model).channels == {name: (0,)}
