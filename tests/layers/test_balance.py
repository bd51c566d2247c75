"""Balanced initialisation: middling lengths at any depth, nothing else touched, what it refuses."""

import pytest
import torch

from error_text import text_of
from torchcaps.errors import TorchcapsError
from torchcaps.layers import (
    AttentionCapsules,
    ConvCapsules,
    DenseCapsules,
    DynamicRouting,
    EMRouting,
    UniformRouting,
)
from torchcaps.layers.balance import balance, find_scale
from torchcaps.types import Capsules

ROUTINGS = {"dynamic": DynamicRouting, "uniform": UniformRouting}
EVERY_KIND = [(name, squash) for name in ROUTINGS for squash in ("hinton", "exp")]


def random_children(n, d, *, count=64, seed=0):
    """Sets of `n` poses in random directions, of lengths between 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(count, n, d, generator=generator)
    length = torch.rand(count, n, generator=generator)
    return Capsules(torch.nn.functional.normalize(direction, dim=-1) * length[..., None], length)


def dense(n_in, n_out, routing="dynamic", squash="exp", d_in=8, d_out=8, **options):
    made = ROUTINGS[routing](squash=squash) if isinstance(routing, str) else routing
    return DenseCapsules(n_in=n_in, d_in=d_in, n_out=n_out, d_out=d_out, routing=made, **options)


def stack(depth, n, routing="dynamic", squash="exp"):
    return {f"layer_{k}": dense(n, n, routing, squash) for k in range(depth)}


@torch.no_grad()
def lengths(layers, children):
    """The mean length of every layer, measured here and not by the layer."""
    found = []
    for layer in layers.values():
        children = layer(children).parents
        found.append(float(children.pose.square().sum(-1).sqrt().mean()))
    return found


def outside(found):
    return {depth: length for depth, length in enumerate(found, 2) if not 0.2 <= length <= 0.6}


# Children, parents, components, layers and sets of children. Layers are calibrated from the bottom
# up, so a stack of twenty begins with stacks of two and five.
SHAPES = [
    *((4, 4, 8, 20, 64), (16, 16, 8, 20, 64), (64, 64, 8, 2, 32)),
    pytest.param(64, 64, 8, 20, 32, marks=pytest.mark.slow),
    (1152, 10, 8, 1, 8),
    *((n_in, n_out, 8, 1, 64) for n_in, n_out in ((4, 16), (16, 4), (1, 4), (1, 1))),
    *((n_in, 16, d, 1, 64) for n_in in (4, 16) for d in (2, 4, 16, 32)),
]


@pytest.mark.parametrize(("n_in", "n_out", "d", "depth", "count"), SHAPES)
@pytest.mark.parametrize(("routing", "squash"), EVERY_KIND)
def test_lengths_are_middling(routing, squash, n_in, n_out, d, depth, count):
    layers = {
        f"layer_{k}": dense(n_in, n_out, routing, squash, d_in=d, d_out=d) for k in range(depth)
    }
    balance(layers, random_children(n_in, d, count=count))
    assert not outside(lengths(layers, random_children(n_in, d, count=count, seed=1)))


@pytest.mark.slow
@pytest.mark.parametrize("weights", range(5))
@pytest.mark.parametrize("n", [4, 16])
@pytest.mark.parametrize(("routing", "squash"), EVERY_KIND)
def test_lengths_are_middling_whatever_the_weights(routing, squash, n, weights):
    torch.manual_seed(weights)
    layers = stack(20, n, routing, squash)
    balance(layers, random_children(n, 8))
    assert not outside(lengths(layers, random_children(n, 8, count=256, seed=1)))


@pytest.mark.parametrize("target", [0.2, 0.4, 0.6])
def test_the_target_is_met(target):
    layers = stack(2, 16)
    children = random_children(16, 8)
    top = balance(layers, children, target=target)
    assert lengths(layers, children) == pytest.approx([target] * 2, abs=0.02)
    assert float(top.pose.norm(dim=-1).mean()) == pytest.approx(target, abs=0.02)


def test_windows_are_balanced_too():
    layer = ConvCapsules(child_grid=(5, 5, 4), d_in=8, types=6, d_out=8, kernel=3)
    balance({"conv": layer}, random_children(100, 8, count=8))
    found = lengths({"conv": layer}, random_children(100, 8, count=8))
    assert found == pytest.approx([0.4], abs=0.02)


def test_without_balance_lengths_vanish():
    """What it is for: the customary deviation of 0.1 leaves nothing after five layers."""
    assert lengths(stack(5, 16), random_children(16, 8))[-1] < 1e-3


@pytest.mark.parametrize("weight_std", [0.01, 0.1, 3.0])
def test_only_the_scale_of_the_weights_changes(weight_std):
    layer = dense(4, 4, DynamicRouting(prior="learned", bias=True), weight_std=weight_std)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    balance({"one": layer}, random_children(4, 8))
    after = layer.state_dict()
    ratio = after.pop("weight") / before.pop("weight")
    torch.testing.assert_close(ratio, ratio.mean().expand_as(ratio))
    assert abs(float(ratio.mean()) - 1) > 0.1
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert layer.weight.requires_grad
    assert layer.weight.grad_fn is None


@pytest.mark.parametrize("n_out", [4, 16])
def test_the_deviation_that_weights_were_drawn_with_does_not_matter(n_out):
    made = []
    for weight_std in (0.1, 30.0):
        torch.manual_seed(5)
        layer = dense(4, n_out, "dynamic", "hinton", weight_std=weight_std)
        balance({"one": layer}, random_children(4, 8))
        made.append(layer.weight)
    torch.testing.assert_close(*made)


def test_on_meta_nothing_is_scaled():
    children = random_children(4, 8)
    with torch.device("meta"):
        layers = stack(2, 4)
        balance(layers, children)
    assert all(layer.weight.is_meta for layer in layers.values())


def test_the_smallest_scale_is_found():
    assert find_scale(lambda scale: scale / 10, 0.4) == pytest.approx(4, rel=0.02)
    assert find_scale(lambda scale: 100 * scale, 0.4) == pytest.approx(0.004, rel=0.02)
    # It rises to 0.3 at scale 8, then falls: nine tenths of the way up is 7.2.
    assert find_scale(lambda scale: 0.3 * min(scale / 8, 8 / scale), 0.4) == pytest.approx(
        7.2, rel=0.02
    )
    assert find_scale(lambda scale: 0.2 * min(scale / 8, 8 / scale), 0.4) is None
    assert find_scale(lambda scale: 0.5 + scale, 0.4) is None


def test_too_many_parents_a_child_are_told():
    layer = dense(4, 64, "dynamic", "hinton")
    drawn = layer.weight.clone()
    text = text_of(lambda: balance({"hidden": layer}, random_children(4, 8)))
    reached = text.split("reaches ")[1][:4]
    assert float(reached) < 0.2
    assert text == (
        "init=\"balanced\" finds no scale for layer 'hidden' (4 children, 64 parents): its mean "
        f"length reaches {reached} and never 0.2, because agreement leaves each child to few "
        'parents; use at most four parents a child, uniform routing, or init="paper" with a '
        "weight_std of your own."
    )
    assert torch.equal(layer.weight, drawn)
    balance({"hidden": dense(4, 64, "uniform", "hinton")}, random_children(4, 8))


def test_children_of_one_window_count():
    layer = ConvCapsules(child_grid=(5, 5, 1), d_in=8, types=64, d_out=8, kernel=2)
    with pytest.raises(TorchcapsError, match=r"layer 'conv' \(4 children, 64 parents\)"):
        balance({"conv": layer}, random_children(25, 8, count=8))


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (dense(4, 4, EMRouting()), "EMRouting"),
        (dense(4, 4, DynamicRouting(squash="none")), "DynamicRouting"),
        (AttentionCapsules(n=4, d=8), "AttentionCapsules"),
    ],
)
def test_layers_without_squashed_lengths_are_refused(layer, name):
    below = dense(4, 4)
    drawn = below.weight.clone()
    layers = {"below": below, "top": layer}
    assert text_of(lambda: balance(layers, random_children(4, 8))) == (
        f"init=\"balanced\" sets squashed lengths, but layer 'top' has {name} and no squash to set "
        f'them by; use dynamic or uniform routing with squash "hinton" or "exp", or init="paper".'
    )
    assert torch.equal(below.weight, drawn)
