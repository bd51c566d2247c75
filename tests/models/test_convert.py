"""Weights laid out as public code has them vote as they do there."""

import math
import re
from functools import reduce

import pytest
import torch

from tables import beside
from torchcaps import create_model
from torchcaps.models import convert
from torchcaps.types import Capsules

INVERTED = {"image": (3, 19, 19), "n_classes": 3, "types": 2, "d_pose": 4, "scaled": True}
NAMES = beside(__file__, "convert.toml")


def made(name, **options):
    return create_model(name, **options).eval()


def renamed(model, source):
    """A state of ours under the names of public code."""
    pairs = NAMES[source].items()
    return {
        reduce(lambda name, pair: re.sub(*pair, name), pairs, name): tensor
        for name, tensor in model.state_dict().items()
    }


def test_dense_matrices_of_apple_vote_as_there():
    """Children are ordered (type, h, w); p W of poses [a, x] and weights [n, x, d, m]."""
    model = made("tsai_inverted_simple_c10", **INVERTED, primary_bias=False)
    layer = model.layers["classes"]
    types, positions = 2, layer.n_in // 2
    w = torch.randn(layer.n_in, 2, 2, 3)
    state = apple_state(model) | {"capsule_layers.2.w": w}
    model.load_state_dict(convert(state, source="apple"))
    children = torch.randn(5, types, positions, 4)  # as there, (type, h * w)
    there = torch.einsum("bnax,nxdm->bnmad", children.flatten(1, 2).unflatten(-1, (2, 2)), w)
    there = there.unflatten(1, (types, positions)).transpose(1, 2).flatten(1, 2).flatten(-2)
    ours = layer.votes(Capsules(children.transpose(1, 2).flatten(1, 2)))
    torch.testing.assert_close(ours, there)


def test_windows_of_apple_vote_as_there():
    model = made("tsai_inverted_simple_c10", **INVERTED, primary_bias=False)
    layer = model.layers["conv_1"]
    w = torch.randn(3, 3, 2, 2, 2, 2)  # k, l, type, x, d, parent
    model.load_state_dict(convert(apple_state(model) | {"capsule_layers.0.w": w}, source="apple"))
    h, width, types = layer.child_grid
    poses = torch.randn(5, h, width, types, 2, 2)
    votes = layer.votes(Capsules(poses.flatten(1, 3).flatten(-2)))  # [b, p, slot, j, d]
    # The window at the second row and the first column of positions.
    window = poses[:, 2:5, 0:3]
    there = torch.einsum("bklnax,klnxdm->bklnmad", window, w).flatten(1, 3).flatten(-2)
    torch.testing.assert_close(votes[:, layer.parent_grid[1]], there)


def apple_state(model):
    """Keys and shapes of its CapsModel, by way of DataParallel."""
    bare = renamed(model, "apple")
    for depth, (name, layer) in enumerate(model.layers.items()):
        shape = (layer.n_in,) if layer.window is None else (3, 3, layer.child_grid[2])
        side = math.isqrt(layer.d_in)
        like = bare.pop(f"layers.{name}.weight")
        w = torch.randn(*shape, side, side, layer.n_out, device=like.device)
        bare[f"capsule_layers.{depth}.w"] = w
        for part in ("weight", "bias"):
            norm = bare.pop(f"layers.{name}.routing.norm.{part}")
            bare[f"capsule_layers.{depth}.nonlinear_act.{part}"] = norm
    state = {f"module.{name}": tensor for name, tensor in bare.items()}
    assert convert(state, source="apple").keys() == convert(bare, source="apple").keys()
    return bare


def test_names_of_apple_with_the_residual_backbone():
    """Every weight finds its place, and so does the layer before a hundred classes."""
    with torch.device("meta"):
        model = create_model("tsai_inverted_resnet_c100", primary_bias=False)
    found = convert(apple_state(model), source="apple")
    expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
    assert {name: tensor.shape for name, tensor in found.items()} == expected


@pytest.mark.parametrize("shared", [False, True])
def test_matrices_of_rem_vote_as_there(shared):
    """[type, h, w, parent, d_out, d_in], children ordered (type, h, w)."""
    options = {"sharing": "all"} if shared else {}
    model = made("rem_dr", image=(1, 19, 19), n_classes=3, bias=True, types=4, **options)
    layer = model.layers["classes"]
    h, width, types = layer.child_grid
    grid = (1, 1, 1) if shared else (types, h, width)
    w, bias = torch.randn(*grid, 3, 16, 8), torch.randn(3, 1, 1, 16, 1)
    state = renamed(model, "rem") | {"classCaps.weight": w, "classCaps.routing_bias": bias}
    model.load_state_dict(convert(state, source="rem"))
    poses = torch.randn(5, types, h, width, 8)
    there = torch.einsum("bnhwi,nhwmoi->bhwnmo", poses, w.expand(types, h, width, -1, -1, -1))
    ours = layer.votes(Capsules(poses.movedim(1, 3).flatten(1, 3)))
    torch.testing.assert_close(ours, there.flatten(1, 3))
    assert torch.equal(layer.routing.bias, bias[:, 0, 0, :, 0])


def test_names_of_rem_s_gamma():
    model = made("gamma_capsnet", image=(1, 19, 19), n_classes=3)
    own = model.state_dict()
    state = {name: x for name, x in renamed(model, "rem").items() if "running" not in name}
    state |= {
        "fcCaps.weight": torch.randn(32, 2, 2, 32, 8, 8),
        "fcCaps.routing_bias": torch.randn(32, 1, 1, 8, 1),
        "classCaps.weight": torch.randn(32, 1, 1, 3, 16, 8),
        "classCaps.routing_bias": torch.randn(3, 1, 1, 16, 1),
    }
    found = convert(state, source="rem")
    # Distances are measured over the batch there, and no mean of them is stored.
    missing = {f"layers.{name}.routing.running_scale" for name in ("hidden", "classes")}
    assert own.keys() - found.keys() == missing
    assert all(tensor.shape == own[name].shape for name, tensor in found.items())


def test_matrices_of_yl_1993_vote_as_there():
    model = made("matrix_capsnet", image=(1, 17, 17), n_classes=3, sizes="5-2-3-4", norm=True)
    state = renamed(model, "yl-1993")
    for name in ("conv_caps1", "conv_caps2", "class_caps"):
        weights = state[f"{name}.weights"]
        state[f"{name}.weights"] = torch.randn(1, *weights.shape)
    model.load_state_dict(convert(state, source="yl-1993"))
    # A product x W; the class matrices are repeated over positions, children ordered (h, w, type).
    layer = model.layers["classes"]
    h, width, types = layer.child_grid
    poses = torch.randn(2, h * width * types, 4, 4)
    there = poses.unsqueeze(2) @ state["class_caps.weights"].repeat(1, h * width, 1, 1, 1)
    layer.coordinates = False
    ours = layer.votes(Capsules(poses.flatten(-2), torch.rand(2, h * width * types)))
    torch.testing.assert_close(ours, there.flatten(-2))


def test_matrices_of_efficient_capsnet_vote_as_there():
    """Keras: kernels [h, w, in, out], W [parent, child, d_in, d_out], layers by their order."""
    model = made("efficient_capsnet", image=(1, 15, 15), n_classes=3)
    own = model.state_dict()
    turned = {1: (0,), 2: (1, 0), 4: (2, 3, 1, 0)}
    state = {
        name: x.permute(turned[x.ndim])
        for name, x in renamed(model, "efficient").items()
        if name.endswith(":0")
    }
    w, b = torch.randn(3, 16, 8, 16), torch.randn(3, 16, 1)
    state |= {"fc_caps/W:0": w, "fc_caps/b:0": b}
    found = convert(state, source="efficient")
    assert found.keys() == {name for name in own if not name.endswith("num_batches_tracked")}
    kept = ("layers.classes.weight", "layers.classes.routing.prior")
    assert all(torch.equal(found[name], own[name]) for name in found if name not in kept)
    model.load_state_dict(found)
    poses = torch.randn(5, 16, 8)
    there = torch.einsum("bji,kjiz->bjkz", poses, w)
    torch.testing.assert_close(model.layers["classes"].votes(Capsules(poses)), there)
    torch.testing.assert_close(model.layers["classes"].routing.prior, b[..., 0].T)
