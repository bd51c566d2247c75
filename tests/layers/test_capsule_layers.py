"""What every layer of capsules keeps: batch axes, what is recorded, sizes that can be read."""

from typing import Any, NamedTuple

import pytest
import torch

from torchcaps.layers import AttentionCapsules, Conv3dCapsules, ConvCapsules, DenseCapsules
from torchcaps.types import Capsules


class Line(NamedTuple):
    make: Any
    # Its children, and the parents that it makes.
    children: tuple[int, int]
    parents: tuple[int, int]
    coupling: tuple[int, ...]
    # How many steps it has, and what its repr says.
    steps: int
    shown: str
    normalised_over: str = "parents"


LINES = {
    "attention": Line(
        lambda: AttentionCapsules(n=5, d=6, heads=2),
        (5, 6),
        (5, 6),
        (5, 5),
        1,
        "AttentionCapsules(n=5, d=6, heads=2)",
        "children",
    ),
    "conv": Line(
        lambda: ConvCapsules(
            child_grid=(5, 4, 2), d_in=4, types=3, d_out=5, kernel=(3, 2), stride=(2, 1)
        ),
        (40, 4),
        (2 * 3 * 3, 5),
        (6, 12, 3),
        3,
        "child_grid=(5, 4, 2), d_in=4, types=3, d_out=5, kernel=(3, 2), stride=(2, 1)",
    ),
    "conv3d": Line(
        lambda: Conv3dCapsules(child_grid=(3, 2, 2), d_in=3, types=4, d_out=2),
        (12, 3),
        (24, 2),
        (2, 24),
        3,
        "child_grid=(3, 2, 2), d_in=3, parent_grid=(3, 2, 4), d_out=2",
    ),
    "dense": Line(
        lambda: DenseCapsules(n_in=5, d_in=3, n_out=4, d_out=2),
        (5, 3),
        (4, 2),
        (5, 4),
        3,
        "n_in=5, d_in=3, n_out=4, d_out=2",
    ),
}


@pytest.fixture(params=LINES.values(), ids=LINES)
def line(request):
    return request.param


def made(line):
    """A layer in float64 whose parameters are all random, as after training."""
    layer = line.make().double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return layer


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
    layer, (n_in, d_in), (n_out, d_out) = line.make(), line.children, line.parents
    per_window = n_out // 6 if isinstance(layer, ConvCapsules) else n_out
    sizes = (layer.n_in, layer.d_in, layer.n_out, layer.d_out)
    assert sizes == (n_in, d_in, per_window, d_out)
    assert line.shown in repr(layer)


@pytest.mark.parametrize("name", ["attention", "conv3d"])
def test_poses_of_another_dtype_pass_under_autocast(name):
    line = LINES[name]
    with torch.autocast("cpu", torch.bfloat16):
        pose = line.make()(Capsules(torch.rand(2, *line.children).bfloat16())).parents.pose
    assert pose.isfinite().all()
