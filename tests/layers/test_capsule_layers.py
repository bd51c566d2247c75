"""What every layer of capsules keeps: batch axes, what is recorded, sizes that can be read."""

from typing import NamedTuple

import pytest
import torch

from layers.routing.bound import random_parameters
from tables import beside
from torchcaps import layers
from torchcaps.layers import ConvCapsules
from torchcaps.types import Capsules


class Line(NamedTuple):
    """What capsule_layers.toml says of a layer."""

    make: str
    children: list[int]
    parents: list[int]
    coupling: list[int]
    steps: int
    shown: str
    normalised_over: str = "parents"

    def layer(self):
        return eval(self.make, vars(layers).copy())


TABLE = beside(__file__, "capsule_layers.toml")
LINES = {name: Line(**said) for name, said in TABLE.items()}


@pytest.fixture(params=LINES.values(), ids=LINES)
def line(request):
    return request.param


def made(line):
    """A layer in float64 whose parameters are all random, as after training."""
    return random_parameters(line.layer().double(), 1)


def children(line, *lead):
    return Capsules(torch.randn(*lead, *line.children, dtype=torch.float64))


def test_any_batch_axes_and_none(line):
    layer, pose = made(line), children(line, 2, 3).pose
    many = layer(Capsules(pose), keep="last")
    assert many.parents.pose.shape == (2, 3, *line.parents)
    assert many.parents.activation.shape == (2, 3, line.parents[0])
    assert many.steps[0].coupling.shape == (2, 3, *line.coupling)
    for alone in (pose[1, 2], pose[1:2, 2]):
        one = layer(Capsules(alone)).parents.pose
        assert one.shape == (*alone.shape[:-2], *line.parents)
        torch.testing.assert_close(one.squeeze(0), many.parents.pose[1, 2], rtol=0, atol=1e-12)
    assert layer(children(line, 0)).parents.pose.shape == (0, *line.parents)


def test_recording_changes_no_bit_and_steps_know_their_children(line):
    layer, u = made(line), children(line, 2)
    bare = layer(u).parents
    for keep, count in (("none", 0), ("last", 1), ("steps", line.steps)):
        routed = layer(u, keep=keep)
        assert len(routed.steps) == count
        assert torch.equal(routed.parents.pose, bare.pose)
        assert all(step.children is u for step in routed.steps)
    assert torch.equal(routed.steps[-1].parents.pose, bare.pose)
    total = routed.steps[-1].coupling.sum(-2 if line.normalised_over == "children" else -1)
    torch.testing.assert_close(total, torch.ones_like(total))
    assert getattr(layer, "routing", layer).normalised_over == line.normalised_over


def test_sizes_can_be_read(line):
    layer, (n_in, d_in), (n_out, d_out) = line.layer(), line.children, line.parents
    per_window = n_out // 6 if isinstance(layer, ConvCapsules) else n_out
    sizes = (layer.n_in, layer.d_in, layer.n_out, layer.d_out)
    assert sizes == (n_in, d_in, per_window, d_out)
    assert line.shown in repr(layer)


@pytest.mark.parametrize("name", ["attention", "conv3d"])
def test_poses_of_another_dtype_pass_under_autocast(name):
    line = LINES[name]
    with torch.autocast("cpu", torch.bfloat16):
        pose = line.layer()(Capsules(torch.rand(2, *line.children).bfloat16())).parents.pose
    assert pose.isfinite().all()
