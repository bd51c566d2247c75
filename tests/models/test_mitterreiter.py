"""The five-layer network: its size on paper, its layers, its uniform twin."""

from itertools import pairwise

import pytest
import torch

from on_meta import count
from torchcaps import create_model
from torchcaps.layers import ROUTINGS
from torchcaps.models import grid_of_121

NAME = "mitterreiter_5x16"
LAYERS = ["hidden_2", "hidden_3", "hidden_4", "classes"]
# (1, 40, 40), 10 classes. Backbone, 40 → 36 → 34 → 32 → 15 pixels:
BACKBONE = (25 * 32 + 32) + (32 * 9 * 64 + 64) + (64 * 9 * 64 + 64) + (64 * 9 * 128 + 128)
NORMS = 2 * (32 + 64 + 64 + 128)
DEPTHWISE = 128 * 15 * 15 + 128
DECODER = (80 * 512 + 512) + (512 * 1024 + 1024) + (1024 * 1600 + 1600)


def small(**chosen):
    torch.manual_seed(2)
    return create_model(NAME, image=(1, 12, 11), n_classes=3, **chosen).eval()


def test_five_layers_of_sixteen():
    trace = small()(torch.rand(2, 1, 12, 11), keep="last").trace
    assert [layer.name for layer in trace] == LAYERS
    assert [layer.children.pose.shape for layer in trace] == [(2, 16, 8)] * 4
    assert trace[-1].routed.parents.pose.shape == (2, 3, 8)
    # Each layer reads what the one below it wrote.
    for below, above in pairwise(trace):
        assert above.children is below.routed.parents
    assert [layer.child_grid for layer in trace] == [(1, 1, 16), None, None, None]


def test_priors_are_learned_and_start_at_zero():
    state = small().state_dict()
    priors = {name: tensor for name, tensor in state.items() if name.endswith("prior")}
    assert set(priors) == {f"layers.{name}.routing.prior" for name in LAYERS}
    assert all(not tensor.any() for tensor in priors.values())


def test_squash_is_exp_everywhere():
    model = small()
    assert model.primary.squash == "exp"
    assert {layer.routing.squash for layer in model.layers.values()} == {"exp"}
    twin = small(routing="uniform")
    assert {layer.routing.squash for layer in twin.layers.values()} == {"exp"}


def test_weights_are_standard_normal():
    half, whole = small(weight_std=0.5).state_dict(), small().state_dict()
    for name in LAYERS:
        weight = f"layers.{name}.weight"
        assert torch.equal(whole[weight], 2 * half[weight])
        assert float(whole[weight].std()) == pytest.approx(1, abs=0.05)


GRID = {"image": (1, 12, 11), "n_classes": 3, "widths": "4,5", "d_pose": 4}


@pytest.mark.parametrize("routing", ROUTINGS)
def test_every_routing_fits_one_small_network(routing):
    """With a head the same trunk, layers and classes score whatever the routing gives."""
    torch.manual_seed(0)
    model = create_model("mitterreiter_grid", **GRID, routing=routing, head=True).eval()
    x = torch.rand(2, 1, 12, 11)
    out = model(x)
    assert out.scores_are == "logits"
    assert [layer.weight.shape for layer in model.layers.values()] == [(4, 5, 4, 4), (5, 3, 4, 4)]
    expected = out.classes.pose @ model.head.weight[0] + model.head.bias
    torch.testing.assert_close(out.scores, expected)
    out.scores.sum().backward()
    assert model.layers["hidden_2"].weight.grad.abs().max() > 0


def test_options_of_em_routing_on_the_grid():
    em = {"lambda_": 0.1, "variant": "gritzman", "unit_poses": True}
    model = create_model("mitterreiter_grid", **GRID, routing="em", **em)
    for layer in model.layers.values():
        found = {name: getattr(layer.routing, name) for name in em}
        assert found == em


def test_the_grid_has_121_networks_and_no_two_alike():
    """Parameters by hand, but for the trunk that is the same for all: matrices, priors, and the map
    from 128 channels to primary poses where they do not fill these."""
    grid = grid_of_121()
    assert len(grid) == len({tuple(options.items()) for options in grid}) == 121
    assert {"widths": "16,16,16,16", "d_pose": 8} in grid
    for options in (grid[0], grid[1], grid[63], grid[120]):
        counts, d = [int(n) for n in options["widths"].split(",")], options["d_pose"]
        pairs = sum(n * m for n, m in pairwise([*counts, 10]))
        primary = counts[0] * d
        linear = 0 if primary == 128 else 128 * primary + primary
        expected = BACKBONE + NORMS + DEPTHWISE + linear + pairs * (d * d + 1)
        assert count("mitterreiter_grid", **options, decoder=False) == expected


def test_a_stack_of_attention_is_the_network_with_other_hidden_layers():
    """Three layers of 4 d² weights where capsules that vote have n² d²; even couplings have no
    priors."""
    attention, classes = 3 * 4 * 8 * 8, 16 * 10 * 8 * 8
    assert count("mhsa_stack") == BACKBONE + NORMS + DEPTHWISE + attention + classes + DECODER
    torch.manual_seed(2)
    model = create_model("mhsa_stack", image=(1, 12, 11), n_classes=3, heads=2).eval()
    trace = model(torch.rand(2, 1, 12, 11), keep="last").trace
    assert [layer.name for layer in trace] == LAYERS
    assert [layer.normalised_over for layer in trace] == ["children"] * 3 + ["parents"]
    for layer in trace[:3]:
        coupling = layer.routed.steps[-1].coupling
        torch.testing.assert_close(coupling.sum(-2), torch.ones(2, 16))
    for below, above in pairwise(trace):
        assert above.children is below.routed.parents
