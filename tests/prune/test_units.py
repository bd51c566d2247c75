"""Capsules, types and channels as wholes: which weights they are, and that nothing reads them."""

import pytest
import torch

from torchcaps import create_model
from torchcaps.prune import Magnitude, MaskAtTheEnd, RandomMasks, prunable, sparsity, units
from torchcaps.prune.units import Unit, in_step, lowest_units
from torchcaps.types import Capsules

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
    assert found[3] == ("child 3 of hidden_2", (("layers.hidden_2.weight", 0, (3,)),), "hidden_2")
    assert found[21] == (
        "child 5 of hidden_3",
        (("layers.hidden_3.weight", 0, (5,)), ("layers.hidden_2.weight", 1, (5,))),
        "hidden_3",
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
    # The last capsule is above hidden layers, where there are some.
    unit = units(model, kind)[-1]
    images = torch.rand(3, *IMAGE)
    with torch.no_grad():
        whole = scores_with_another(unit, kind, model, images)
        masked(model, unit)
        before = model(images).scores
        after = scores_with_another(unit, kind, model, images)
    assert torch.allclose(after, before, atol=1e-6)
    # It was read before.
    assert not torch.allclose(whole, before, atol=1e-6)


def scores_with_another(unit, kind, model, images):
    """What makes the unit is drawn anew, large and positive, so that no ReLU silences it. A capsule
    leaves its layer with another pose: its votes, made anew, would still compete for children."""
    intervene = {}
    if kind == "capsule":
        names = ["primary", *model.layers]
        reads = unit.parts[0]
        below = names[names.index(reads.weight.split(".")[1]) - 1]
        intervene[below] = another_pose(*reads.rows)
    else:
        makes = [p for p in unit.parts if p.axis == 0 and not p.weight.startswith("layers")]
        assert makes
        for name, _, rows in makes:
            weight = prunable(model)[name]
            weight[list(rows)] = torch.rand_like(weight[list(rows)])
    return model(images, intervene=intervene).scores


def another_pose(row):
    def changed(capsules):
        pose = capsules.pose.clone()
        pose[:, row] = torch.nn.functional.normalize(torch.randn_like(pose[:, row]), dim=-1)
        return Capsules(pose, pose.norm(dim=-1))

    return changed


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


def test_layers_in_step_by_hand():
    """Of layer a go a half and the whole with its two units, of layer b a quarter with each."""
    ordered = [Unit(name, (), name[0]) for name in ("b3", "a1", "b0", "a0", "b1", "b2")]
    assert [unit.name for unit in in_step(ordered)] == ["b3", "a1", "b0", "b1", "a0", "b2"]


@pytest.mark.parametrize("way", ["magnitude", "random"])
def test_each_layer_loses_the_same_share_of_its_units(way):
    model = network("rem_eff_mnist")
    with torch.no_grad():
        # As no training would leave it: every channel of one layer is smaller than all others.
        model.get_submodule("backbone.3").weight *= 0.01
    ordered = lowest_units(
        units(model, "channel"),
        {name: weight.detach().abs() for name, weight in prunable(model).items()},
        {name: torch.zeros_like(weight).bool() for name, weight in prunable(model).items()},
    )
    if way == "magnitude":
        MaskAtTheEnd(model, to=0.4, unit="channel", scope="layer").at_the_end()
    else:
        generator = torch.Generator().manual_seed(0)
        pruner = RandomMasks(model, to=0.4, unit="channel", scope="layer", generator=generator)
        pruner.before_training(dict)
    assert 0.38 < sparsity(model).share <= 0.4
    left, shares = left_of(model, "channel"), []
    for layer in ("backbone.0", "backbone.3", "backbone.6"):
        mine = [unit.name for unit in ordered if unit.layer == layer]
        gone = [name for name in mine if name not in left]
        shares.append(len(gone) / len(mine))
        assert (set(gone) == set(mine[: len(gone)])) == (way == "magnitude")
    # One unit of the smallest layer, of 32 channels, may wait for its turn.
    assert max(shares) - min(shares) <= 1 / 32, shares
    assert min(shares) > 0.1


def test_units_prune_along_a_ramp_and_keep_what_is_pruned():
    model = network("rem_eff_mnist")
    pruner = Magnitude(model, targets=(0.2, 0.4), unit="channel")
    pruner.after_epoch(0, lambda: 0.0)
    first = {name: mask.clone() for name, mask in pruner.masks.pruned.items()}
    pruner.after_epoch(1, lambda: 0.0)
    assert all(bool((mask <= pruner.masks.pruned[name]).all()) for name, mask in first.items())
    assert 0.35 < sparsity(model).share <= 0.4


def left_of(model, kind):
    """Which units have a weight that is not zero."""
    weights = prunable(model)
    return {
        unit.name
        for unit in units(model, kind)
        if any(bool(part.of(weights[part.weight]).any()) for part in unit.parts)
    }


def test_channels_that_share_weights_go_alike_at_once_and_step_by_step():
    """The column of a pruned channel runs through the kernels of the channels behind it, and its
    zeros make none of these smaller than its own weights are."""
    at_once, in_steps = network("rem_eff_mnist"), network("rem_eff_mnist")
    Magnitude(at_once, targets=(0.25,), unit="channel").after_epoch(0, lambda: 0.0)
    pruner = Magnitude(in_steps, targets=(0.05, 0.1, 0.15, 0.2, 0.25), unit="channel")
    for epoch in range(5):
        pruner.after_epoch(epoch, lambda: 0.0)
    together, apart = left_of(at_once, "channel"), left_of(in_steps, "channel")
    # The rest of a step waits for the next, so a few at the edge may differ.
    assert len(together ^ apart) <= 4
    assert "channel 0 of backbone.0" in apart


def test_random_units_are_drawn_whatever_their_size():
    """Hidden capsules have matrices below and above, so twice as many weights and more."""
    gone = dict.fromkeys(("hidden_2", "hidden_3", "classes"), 0)
    of_all = dict.fromkeys(gone, 0)
    for seed in range(10):
        model = network("peer_deep_dynamic", width=16, n_layers=4)
        generator = torch.Generator().manual_seed(seed)
        RandomMasks(model, to=0.3, unit="capsule", generator=generator).before_training(dict)
        left = left_of(model, "capsule")
        for unit in units(model, "capsule"):
            layer = unit.name.split(" of ")[-1]
            of_all[layer] += 1
            gone[layer] += unit.name not in left
    shares = {layer: gone[layer] / of_all[layer] for layer in gone}
    assert max(shares.values()) - min(shares.values()) < 0.1, shares
    assert min(shares.values()) > 0.1, shares


def test_weights_that_were_pruned_before_stay_so_and_count():
    model = network("mitterreiter_5x16")
    MaskAtTheEnd(model, to=0.3).at_the_end()
    zeros = {name: weight == 0 for name, weight in prunable(model).items()}
    pruner = Magnitude(model, targets=(0.1, 0.6))
    assert pruner.masks.count == sum(int(mask.sum()) for mask in zeros.values())
    with torch.no_grad():
        for weight in prunable(model).values():
            weight.add_(1)
    pruner.after_step()
    # A target below what is there changes nothing.
    pruner.after_epoch(0, lambda: 0.0)
    for name, weight in prunable(model).items():
        assert torch.equal(weight == 0, zeros[name])
    pruner.after_epoch(1, lambda: 0.0)
    assert sparsity(model).share == pytest.approx(0.6, abs=1e-4)
    assert all(bool((weight == 0)[zeros[n]].all()) for n, weight in prunable(model).items())
    # Units are added to single weights that were pruned, and do not go beyond what was asked.
    MaskAtTheEnd(model, to=0.7, unit="capsule").at_the_end()
    assert 0.6 < sparsity(model).share <= 0.7


@pytest.mark.parametrize(
    ("part", "kind", "layers"),
    [
        ("backbone.0", "channel", {"backbone.3", "backbone.6"}),
        # Children of hidden_3 have votes of hidden_2 among their weights.
        ("layers.hidden_2", "capsule", {"hidden_4", "classes"}),
        ("layers.hidden_3", "capsule", {"hidden_2", "classes"}),
    ],
)
def test_units_that_reach_into_a_frozen_part_stay(part, kind, layers):
    model = network("mitterreiter_5x16")
    model.get_submodule(part).requires_grad_(False)
    before = model.get_submodule(part).weight.clone()
    found = MaskAtTheEnd(model, to=0.05, unit=kind)
    assert {unit.layer for unit in found.units} == layers
    found.at_the_end()
    assert 0.03 < sparsity(model).share <= 0.05
    assert torch.equal(model.get_submodule(part).weight, before)
    for unit in found.units:
        assert {each.weight for each in unit.parts} <= set(prunable(model))
