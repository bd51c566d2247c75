"""Smaller for real: parts taken out of networks, and the scores that stay."""

import pytest
import torch
from torch import nn

from torchcaps import create_model, load, save
from torchcaps.layers import DenseCapsules, DynamicRouting, PrimaryCapsules, feature_shape
from torchcaps.models import CapsuleNetwork
from torchcaps.models.smaller import Kept, smaller
from torchcaps.prune import MaskAtTheEnd, RandomMasks, prunable, removable, silent, units
from torchcaps.prune.removable import _ignores_zero_votes, _pays
from torchcaps.types import Capsules

IMAGE = (1, 20, 20)


def network(name, **options):
    torch.manual_seed(0)
    return create_model(name, image=IMAGE, **options).eval()


def size(model):
    return sum(parameter.numel() for parameter in model.parameters())


def scores(model, images):
    with torch.no_grad():
        return model(images, keep="last").scores


SHARED = {"kernel": 7, "types": 8, "width": 16, "sharing": "type"}
# What is pruned as a whole, how much of it, and what must become smaller.
CASES = [
    ("rem_dr", "type", 0.4, {"kernel": 7, "types": 8, "width": 16}),
    ("rem_dr", "channel", 0.15, {"kernel": 7, "types": 8, "width": 16}),
    ("rem_dr", "capsule", 0.15, {"kernel": 7, "types": 8, "width": 16}),
    ("capsnet", "type", 0.3, {"kernel": 7, "types": 8, "width": 16}),
    ("rem_eff_mnist", "type", 0.4, {}),
    ("rem_eff_mnist", "channel", 0.3, {}),
    ("rem_eff_mnist", "capsule", 0.05, {}),
    ("mitterreiter_5x16", "capsule", 0.1, {}),
    ("mitterreiter_5x16", "channel", 0.3, {}),
    ("rem_multilayer", "capsule", 0.1, {}),
    ("rem_gamma", "capsule", 0.05, {}),
    ("gu_capsnet", "type", 0.4, {"kernel": 7, "types": 8, "width": 16}),
    ("rem_dr", "type", 0.4, {**SHARED, "routing": "self_attention"}),
]


@pytest.mark.parametrize(("name", "kind", "to", "options"), CASES)
def test_what_is_pruned_as_a_whole_is_taken_out_and_the_scores_stay(
    name, kind, to, options, tmp_path
):
    model = network(name, **options)
    MaskAtTheEnd(model, to=to, unit=kind).at_the_end()
    # Priors and biases that differ, as after training.
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith(("prior", "bias")):
                parameter += 0.3 * torch.randn_like(parameter)
    small = smaller(model, removable(model))
    assert size(small) < size(model)
    images = torch.rand(4, *IMAGE)
    assert torch.allclose(scores(small, images), scores(model, images), rtol=0, atol=1e-6)
    save(small, tmp_path / "small.safetensors")
    again = load(tmp_path / "small.safetensors")
    assert torch.equal(scores(again, images), scores(small, images))
    # Smaller once more is the same, and nothing is left to take out.
    twice = smaller(small, removable(small))
    assert size(twice) == size(small)
    assert torch.allclose(scores(twice, images), scores(model, images), rtol=0, atol=1e-6)


def test_types_through_windows_are_taken_out():
    torch.manual_seed(0)
    model = create_model("rem_effconv", image=(1, 40, 40)).eval()
    MaskAtTheEnd(model, to=0.3, unit="type").at_the_end()
    small = smaller(model, removable(model))
    assert size(small) < 0.8 * size(model)
    images = torch.rand(2, 1, 40, 40)
    assert torch.allclose(scores(small, images), scores(model, images), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["rem_multilayer", "mitterreiter_5x16"])
@pytest.mark.parametrize("iterations", [1, 3])
def test_a_parent_leaves_its_logit_behind_in_the_softmax_of_its_siblings(name, iterations):
    """Eq. 12 by hand: c_ij = exp(b_ij) / (Σ kept + Σ gone), with priors of its own for everyone."""
    model = network(name, iterations=iterations)
    gone = (3, 7, 8)
    with torch.no_grad():
        model.layers["hidden_3"].weight[:, list(gone)] = 0
        model.layers["hidden_4"].weight[list(gone)] = 0
        prior = model.layers["hidden_3"].routing.prior
        if prior is not None:
            prior.copy_(torch.randn_like(prior))
    kept = removable(model)
    left = tuple(j for j in range(16) if j not in gone)
    assert kept == Kept({}, None, None, {"hidden_3": left})
    small = smaller(model, kept)
    images = torch.rand(3, *IMAGE)
    one, two = (
        {layer.name: layer for layer in net(images, keep="last").trace} for net in (model, small)
    )
    whole = one["hidden_3"].routed.steps[-1].coupling
    few = two["hidden_3"].routed.steps[-1].coupling
    assert few.shape[-1] == 14
    assert torch.allclose(few[..., :13], whole[..., list(left)], atol=1e-6)
    # The one that stands for all has what all of them had.
    assert torch.allclose(few[..., 13], whole[..., list(gone)].sum(-1), atol=1e-6)
    assert torch.allclose(scores(small, images), scores(model, images), rtol=0, atol=1e-6)
    # Taken out without it, couplings are others; in the first iteration all of them grow.
    bare = smaller(model, kept)
    with torch.no_grad():
        bare.layers["hidden_3"].routing.prior[:, -1] = -1e9
    grown = bare(images, keep="last").trace[1].routed.steps[-1].coupling
    assert iterations > 1 or bool((grown[..., :13] > few[..., :13]).all())
    assert not torch.allclose(grown[..., :13], few[..., :13], atol=1e-3)


def test_a_single_parent_stays_since_one_must_stand_for_all():
    model = network("rem_multilayer")
    with torch.no_grad():
        model.layers["hidden_3"].weight[:, 3] = 0
        model.layers["hidden_4"].weight[3] = 0
    assert removable(model) == Kept({}, None, None, {})


def test_unstructured_zeros_leave_nothing_to_take_out():
    model = network("rem_eff_mnist")
    generator = torch.Generator().manual_seed(0)
    RandomMasks(model, to=0.85, generator=generator).before_training(dict)
    assert removable(model) == Kept({}, None, None, {})


def test_a_mean_over_children_counts_those_that_are_zero():
    model = network("gu_capsnet_nor", kernel=7, types=4, width=8)
    with torch.no_grad():
        model.layers["classes"].weight[:20] = 0
    assert removable(model).children is None
    even = network("rem_dr", kernel=7, types=4, width=8, routing="uniform")
    with torch.no_grad():
        even.layers["classes"].weight[:20] = 0
    assert removable(even).children == tuple(range(20, even.layers["classes"].n_in))


def test_em_routing_counts_votes_of_zero():
    model = network("rem_dr", kernel=7, types=4, width=8, routing="em")
    with torch.no_grad():
        model.layers["classes"].weight[:20] = 0
    assert removable(model).children is None


def test_what_is_silent_on_images_is_taken_out_of_an_unpruned_network():
    model = network("rem_dr", kernel=7, types=4, width=8)
    with torch.no_grad():
        # Two channels that no image lights up, and a type that is never there.
        model.backbone[0].bias[:2] = -100.0
        model.primary.projection.weight[8:16] = 0
        model.primary.projection.bias[8:16] = 0
    images = torch.rand(6, *IMAGE)
    assert removable(model) == Kept({}, None, None, {})
    kept = removable(model, silent(model, images.split(2)))
    assert kept.channels == {"backbone.0": tuple(range(2, 8))}
    assert kept.types == (0, 2, 3)
    assert kept.children is None
    small = smaller(model, kept)
    assert small.primary_grid[2] == 3
    assert small.backbone[0].weight.shape[0] == 6
    assert torch.allclose(scores(small, images), scores(model, images), rtol=0, atol=1e-6)


def test_nearly_silent_capsules_move_the_scores_a_little():
    model = network("rem_dr", kernel=7, types=4, width=8)
    images = torch.rand(6, *IMAGE)
    seen = silent(model, images.split(3))
    lengths = seen.capsules["classes"]
    with torch.no_grad():
        poses = model.primary(model.backbone(images)).pose
    assert torch.allclose(lengths, poses.norm(dim=-1).amax(0), atol=1e-6)
    below = float(lengths.kthvalue(30).values)
    kept = removable(model, seen, below=below)
    assert kept.children == tuple((lengths > below).nonzero().flatten().tolist())
    small = smaller(model, kept)
    assert small.layers["classes"].n_in == len(lengths) - 30
    change = float((scores(small, images) - scores(model, images)).abs().max())
    assert 0 < change < 0.1


def test_dead_hidden_capsules_leave_one_behind():
    model = network("rem_multilayer")
    with torch.no_grad():
        model.layers["hidden_2"].weight[:, 4:9] = 0
    images = torch.rand(4, *IMAGE)
    # They are read, but there is nothing to read.
    assert removable(model).parents == {}
    kept = removable(model, silent(model, [images]))
    assert kept.parents == {"hidden_2": (0, 1, 2, 3, *range(9, 16))}
    small = smaller(model, kept)
    assert torch.allclose(scores(small, images), scores(model, images), rtol=0, atol=1e-6)


def test_classes_are_never_taken_out():
    model = network("rem_dr", kernel=7, types=4, width=8)
    with torch.no_grad():
        model.layers["classes"].weight[:, 3] = 0
    images = torch.rand(2, *IMAGE)
    small = smaller(model, removable(model, silent(model, [images])))
    assert scores(small, images).shape == (2, 10)
    assert torch.equal(scores(small, images)[:, 3], torch.zeros(2))


def test_something_always_stays():
    model = network("rem_dr", kernel=7, types=4, width=8)
    with torch.no_grad():
        model.layers["classes"].weight.zero_()
    small = smaller(model, removable(model))
    assert torch.equal(scores(small, torch.rand(2, *IMAGE)), torch.zeros(2, 10))


def test_what_zero_kernels_make_is_taken_out():
    model = network("rem_dr", kernel=7, types=4, width=8)
    with torch.no_grad():
        model.backbone[0].weight[3] = 0
        assert removable(model).channels == {}  # its bias is seen everywhere
        model.backbone[0].bias[3] = 0
    assert removable(model).channels == {"backbone.0": (0, 1, 2, 4, 5, 6, 7)}
    images = torch.rand(2, *IMAGE)
    small = smaller(model, removable(model))
    assert torch.allclose(scores(small, images), scores(model, images), rtol=0, atol=1e-6)


def test_children_that_are_left_are_counted_where_the_weights_are():
    model = create_model("rem_dr", image=IMAGE, kernel=7, types=4, width=8).to("meta")
    small = smaller(model, Kept({}, None, (0, 2), {}))
    assert small.kept_children.device.type == "meta"


def with_trunk(*parts):
    """A network of these parts, whose last convolution has 16 channels: 4 types of capsules."""
    torch.manual_seed(0)
    backbone, projection = nn.Sequential(*parts[:-1]), parts[-1]
    (c, h, w), d = feature_shape(nn.Sequential(*parts), IMAGE), 4
    return CapsuleNetwork(
        image=IMAGE,
        backbone=backbone,
        primary=PrimaryCapsules(projection, d_out=d),
        primary_grid=(h, w, c // d),
        layers={"classes": DenseCapsules(n_in=h * w * c // d, d_in=d, n_out=3, d_out=8)},
    ).eval()


@pytest.mark.parametrize("grouped", [nn.Conv2d(8, 8, 3, groups=4), nn.Conv2d(8, 16, 3, groups=8)])
def test_a_convolution_in_groups_is_left_as_it_is(grouped):
    """Its channels cannot be followed, so children alone are taken out."""
    first, last = nn.Conv2d(1, 8, 5, 2), nn.Conv2d(grouped.out_channels, 16, 3, 2)
    model = with_trunk(first, nn.ReLU(), grouped, nn.ReLU(), last)
    with torch.no_grad():
        model.layers["classes"].weight[:5] = 0
    kept = removable(model)
    assert kept == Kept({}, None, tuple(range(5, model.layers["classes"].n_in)), {})
    small = smaller(model, kept)
    assert size(small) == size(model) - 5 * 4 * 3 * 8
    images = torch.rand(4, *IMAGE)
    assert torch.allclose(scores(small, images), scores(model, images), rtol=0, atol=1e-6)


class Residual(nn.Sequential):
    def forward(self, features):
        return features + super().forward(features)


class Block(nn.Sequential):
    """A name for parts that follow one another."""


def test_a_sequence_with_a_forward_of_its_own_is_no_plain_chain():
    """What it gives may hold more than its parts make."""
    made = {}
    for kind in (Residual, Block):
        block = kind(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        made[kind] = with_trunk(nn.Conv2d(1, 8, 5, 2), nn.ReLU(), block, nn.Conv2d(8, 16, 3, 2))
    with torch.no_grad():
        for model in made.values():
            for part in (model.backbone[0], model.backbone[2][0]):
                part.weight[3], part.bias[3] = 0, 0
    assert removable(made[Residual]) == Kept({}, None, None, {})
    left = (0, 1, 2, 4, 5, 6, 7)
    assert removable(made[Block]).channels == {"backbone.0": left, "backbone.2.0": left}


def test_units_hold_what_a_smaller_network_lacks():
    """Brute force: the parameters that went are those of the units that were pruned."""
    model = network("rem_dr", kernel=7, types=8, width=16)
    pruned = units(model, "type")[1:4]
    with torch.no_grad():
        for unit in pruned:
            for weight, axis, rows in unit.parts:
                prunable(model)[weight].index_fill_(axis, torch.tensor(rows), 0)
    small = smaller(model, removable(model))
    weights = sum(
        prunable(model)[weight].index_select(axis, torch.tensor(rows)).numel()
        for unit in pruned
        for weight, axis, rows in unit.parts
    )
    # And one bias of each of their channels.
    assert size(model) - size(small) == weights + 3 * 8
    assert isinstance(small, nn.Module)
    with torch.no_grad():
        assert isinstance(small.primary(small.backbone(torch.rand(1, *IMAGE))), Capsules)


@pytest.mark.parametrize(
    ("middle", "is_smaller"),
    [({}, True), ({"vote_bias": True}, False), ({"coordinates": torch.ones(8, 6)}, False)],
)
def test_a_parent_stays_whose_votes_are_more_than_a_matrix(middle, is_smaller):
    """Networks of one's own: three layers, and in the middle one three parents that nothing reads
    and whose matrices are zero."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(1, 8, 5, 2), nn.ReLU())
    primary = PrimaryCapsules(nn.Conv2d(8, 16, 5, 2), d_out=4)

    def layer(n_in, d_in, n_out, **options):
        sizes = {"n_in": n_in, "d_in": d_in, "n_out": n_out, "d_out": 6}
        return DenseCapsules(**sizes, routing=DynamicRouting(), weight_std=0.8, **options)

    layers = {"first": layer(16, 4, 8), "middle": layer(8, 6, 8, **middle), "last": layer(8, 6, 5)}
    model = CapsuleNetwork(
        image=IMAGE, backbone=backbone, primary=primary, primary_grid=(2, 2, 4), layers=layers
    ).eval()
    model.config = {}
    with torch.no_grad():
        for j in (1, 3, 4):
            model.layers["middle"].weight[:, j] = 0
            model.layers["last"].weight[j] = 0
    kept = removable(model)
    assert ("middle" in kept.parents) == is_smaller
    images = torch.rand(4, *IMAGE)
    small = smaller(model, kept)
    assert torch.allclose(scores(small, images), scores(model, images), atol=1e-6)


@pytest.mark.parametrize(
    ("prior", "gone", "pays"),
    [
        # A parent has 16 · 4 weights and 5 · 4 above it. Two less are 168, and a prior has 16 · 38.
        ("zero", 3, False),
        # Seven less are 7 · 84 = 588 numbers, and the prior has 16 · 33 = 528.
        ("zero", 8, True),
        # Six less are 504, and the prior has 16 · 34 = 544.
        ("zero", 7, False),
        ("learned", 2, True),
    ],
)
def test_parents_stay_where_a_new_prior_would_need_more_numbers(prior, gone, pays):
    """Without two of its parents a network was larger than before."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(1, 8, 5, 2), nn.ReLU())
    primary = PrimaryCapsules(nn.Conv2d(8, 8, 5, 2), d_out=2)
    sizes = {"d_in": 2, "d_out": 2, "weight_std": 0.8}
    hidden = DenseCapsules(n_in=16, n_out=40, routing=DynamicRouting(prior=prior), **sizes)
    layers = {"hidden": hidden, "classes": DenseCapsules(n_in=40, n_out=5, **sizes)}
    model = CapsuleNetwork(
        image=IMAGE, backbone=backbone, primary=primary, primary_grid=(2, 2, 4), layers=layers
    ).eval()
    model.config = {}
    with torch.no_grad():
        hidden.weight[:, :gone] = 0
        layers["classes"].weight[:gone] = 0
    kept = removable(model)
    assert kept.parents == ({"hidden": tuple(range(gone, 40))} if pays else {})
    small = smaller(model, kept)
    assert (size(small) < size(model)) == pays
    images = torch.rand(4, *IMAGE)
    assert torch.allclose(scores(small, images), scores(model, images), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("n_out", "has_prior", "pays"), [(3, False, False), (2, False, True), (3, True, True)]
)
def test_parents_are_taken_out_where_they_save_more_than_a_prior(n_out, has_prior, pays):
    # One parent less: 2 matrices of its own and 2 above, against 2 · (n_out − 1) of a prior.
    routing = DynamicRouting()
    layer = DenseCapsules(n_in=2, n_out=n_out, d_in=1, d_out=1, routing=routing)
    if has_prior:
        routing.prior = nn.Parameter(torch.zeros(2, n_out))
    assert _pays(layer, DenseCapsules(n_in=n_out, n_out=2, d_in=1, d_out=1), 1, 2) == pays


def test_votes_with_a_bias_are_not_zero():
    layer = DenseCapsules(n_in=2, n_out=3, d_in=1, d_out=1)
    assert _ignores_zero_votes(layer)
    layer.vote_bias = nn.Parameter(torch.ones(3, 1))
    assert not _ignores_zero_votes(layer)
    assert not _ignores_zero_votes(nn.Linear(2, 2))
