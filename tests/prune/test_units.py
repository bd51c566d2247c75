"""Capsules, types and channels as wholes: which weights they are, and that nothing reads them."""

import pytest
import torch

from error_text import text_of
from torchcaps import create_model
from torchcaps.prune import Magnitude, MaskAtTheEnd, prunable, sparsity, units

IMAGE = (1, 20, 20)


def network(name, **options):
    torch.manual_seed(0)
    return create_model(name, image=IMAGE, **options).eval()


def masked(model, unit):
    """The weights of the network, without those of one unit."""
    with torch.no_grad():
        for name, axis, rows in unit.parts:
            prunable(model)[name].index_fill_(axis, torch.tensor(rows), 0)


def test_a_capsule_is_what_it_votes_with_and_what_votes_for_it():
    model = network("mitterreiter_5x16")
    found = units(model, "capsule")
    # 16 primary capsules, and 16 of each of three hidden layers; no class.
    assert len(found) == 64
    assert found[3] == ("child 3 of hidden_2", (("layers.hidden_2.weight", 0, (3,)),))
    assert found[21] == (
        "child 5 of hidden_3",
        (("layers.hidden_3.weight", 0, (5,)), ("layers.hidden_2.weight", 1, (5,))),
    )


def test_a_type_is_its_kernels_and_its_matrices_at_every_position():
    model = network("rem_dr", kernel=7, types=4, d_primary=8)
    height, width, _ = model.primary_grid
    found = units(model, "type")
    assert [unit.name for unit in found] == ["type 0", "type 1", "type 2", "type 3"]
    kernels, matrices = found[2].parts
    assert kernels == ("primary.projection.weight", 0, tuple(range(16, 24)))
    assert matrices == ("layers.classes.weight", 0, tuple(range(2, 4 * height * width, 4)))
    # Through a depthwise convolution a type has its kernels in the convolution before, too.
    (first, *_) = units(network("rem_eff_mnist"), "type")
    assert [part.weight for part in first.parts] == [
        "backbone.9.weight",
        "primary.projection.weight",
        "layers.classes.weight",
    ]
    # In a window: slots are ordered (row, column, type).
    windows = create_model("rem_effconv", image=(1, 40, 40))
    assert units(windows, "type")[5].parts[-1].rows == tuple(range(5, 9 * 16, 16))


def test_a_channel_is_what_makes_it_and_what_reads_it():
    found = units(network("rem_dr", kernel=7), "channel")
    assert len(found) == 256
    assert found[9].parts == (
        ("backbone.0.weight", 0, (9,)),
        ("primary.projection.weight", 1, (9,)),
    )
    # Those of the last convolution are components of poses.
    assert len(units(network("rem_eff_mnist"), "channel")) == 32 + 64 + 64


CASES = [
    ("rem_dr", "type", {"kernel": 7, "types": 8}),
    ("rem_dr", "channel", {"kernel": 7}),
    ("rem_dr", "capsule", {"kernel": 7, "types": 8}),
    ("rem_eff_mnist", "type", {}),
    ("rem_eff_mnist", "channel", {}),
    ("mitterreiter_5x16", "capsule", {}),
    ("gu_capsnet", "type", {"kernel": 7}),
]


@pytest.mark.parametrize(("name", "kind", "options"), CASES)
def test_nothing_reads_a_pruned_unit(name, kind, options):
    """Whatever a pruned unit is given, the scores do not move."""
    model = network(name, **options)
    unit = units(model, kind)[2]
    masked(model, unit)
    images = torch.rand(3, *IMAGE)
    with torch.no_grad():
        before = model(images).scores
        # Kernels and rows that make it, at random again; what reads it stays zero.
        makes = [part for part in unit.parts if part.weight.startswith(("backbone", "primary"))]
        for name, axis, rows in makes:
            if axis == 0:
                weight = prunable(model)[name]
                weight[list(rows)] = torch.randn_like(weight[list(rows)])
        assert torch.allclose(model(images).scores, before, atol=1e-6)
    if kind != "capsule":
        assert makes


def brute_force(model, kind, count):
    """Units from the smallest on, by their mean size, as long as they fit."""
    weights = prunable(model)

    def mean(unit):
        values = [
            weights[p.weight].detach().abs().index_select(p.axis, torch.tensor(p.rows))
            for p in unit.parts
        ]
        return torch.cat([each.flatten() for each in values]).double().mean()

    chosen = {name: torch.zeros_like(weight, dtype=torch.bool) for name, weight in weights.items()}
    for unit in sorted(units(model, kind), key=mean):
        trial = {name: mask.clone() for name, mask in chosen.items()}
        for name, axis, rows in unit.parts:
            trial[name].index_fill_(axis, torch.tensor(rows), True)
        if sum(int(mask.sum()) for mask in trial.values()) > count:
            break
        chosen = trial
    return chosen


@pytest.mark.parametrize(("name", "kind", "options"), [CASES[0], CASES[4], CASES[5]])
@pytest.mark.parametrize("to", [0.15, 0.3])
def test_the_smallest_units_are_pruned_as_long_as_they_fit(name, kind, options, to):
    model = network(name, **options)
    if kind == "capsule":
        to /= 5
    expected = brute_force(model, kind, round(to * sparsity(model).weights))
    pruner = MaskAtTheEnd(model, to=to, unit=kind)
    pruner.at_the_end()
    assert all(torch.equal(pruner.masks.pruned[name], mask) for name, mask in expected.items())
    assert 0 < sparsity(model).share <= to


def test_units_prune_along_a_ramp_and_keep_what_is_pruned():
    model = network("rem_eff_mnist")
    pruner = Magnitude(model, targets=(0.2, 0.4), unit="channel")
    pruner.after_epoch(0, lambda: 0.0)
    first = {name: mask.clone() for name, mask in pruner.masks.pruned.items()}
    pruner.after_epoch(1, lambda: 0.0)
    assert all(bool((mask <= pruner.masks.pruned[name]).all()) for name, mask in first.items())
    assert 0.35 < sparsity(model).share <= 0.4


def test_units_that_cannot_hold_so_many_weights():
    model = network("rem_dr", kernel=7, types=4)
    # 64 × 8 children, 10 classes × 16 components, of which the convolutions have none.
    held = 64 * 8 * 160 / sparsity(model).weights
    assert text_of(lambda: MaskAtTheEnd(model, to=0.9, unit="capsule")) == (
        f"capsules hold {held:.1%} of the weights of this network and some must stay, so pruning "
        f"them cannot reach a sparsity of 90.0%; prune to less, or prune single weights, "
        f'unit="weight".'
    )


def test_networks_without_such_units_say_why():
    with torch.device("meta"):
        names = ("convnet_avg", "tsai_dynamic_resnet_c10", "matrix_capsnet_mnist", "deepcaps")
        plain, residual, matrix, deep = map(create_model, names)
        shared = create_model("gu_aff_capsnet", image=IMAGE, kernel=7)
    assert text_of(lambda: units(plain, "capsule")) == (
        "a ConvNet has no capsules, so none can be pruned or taken out; take weights, or another "
        "network."
    )
    assert "have no matrices of their own" in text_of(lambda: units(shared, "type"))
    assert "has no capsule that could be pruned" in text_of(lambda: units(shared, "capsule"))
    assert "past which channels cannot be followed" in text_of(lambda: units(residual, "channel"))
    assert "activations of the same channels" in text_of(lambda: units(matrix, "type"))
    assert "a DeepCaps has none; take weights" in text_of(lambda: units(deep, "channel"))
    assert len(units(deep, "capsule")) == deep.layers["classes"].n_in
    assert text_of(lambda: units(shared, "layer")) == (
        "units to prune are capsules, types or channels, but came as 'layer'."
    )
