"""An eighth routing, added from outside through public names alone.

"star": a child prefers the parents to which its vote is nearest to the mean vote. Of six touches
in CONTRIBUTING.md four are here, the op, its twin, its module with its line among the routings, and
its contract; its paper and its page would be the other two. Nothing else of torchcaps knows of it.
"""

import functools

import pytest
import torch
from torch.utils._pytree import tree_map

import torchcaps as tc
from torchcaps.testing import assert_routing_contract


def star_routing(votes, *, sharpness=1.0, shyness=0.0, keep="none"):
    wide = votes.to(torch.promote_types(votes.dtype, torch.float32))
    distance = (wide - wide.mean(-3, keepdim=True)).square().sum(-1)
    coupling = (-sharpness * distance).softmax(-1)
    coupling = (1 - shyness) * coupling + shyness / votes.shape[-2]
    pose = tc.ops.squash((coupling.unsqueeze(-1) * wide).sum(-3)).to(votes.dtype)
    parents = tc.Capsules(pose, torch.linalg.vector_norm(pose, dim=-1))
    step = tc.Step(None, coupling.to(votes.dtype), parents)
    return tc.Routed(parents, () if keep == "none" else (step,))


def twin(votes, shyness=0.0):
    *lead, n_in, n_out, size = votes.shape
    poses, couplings = [], []
    for sample in votes.reshape(-1, n_in, n_out, size):
        mean = [sum(sample[i, j] for i in range(n_in)) / n_in for j in range(n_out)]
        rows = []
        for i in range(n_in):
            mass = [torch.exp(-((sample[i, j] - mean[j]) ** 2).sum()) for j in range(n_out)]
            shares = [(1 - shyness) * m / sum(mass) + shyness / n_out for m in mass]
            rows.append(torch.stack(shares))
        c = torch.stack(rows)
        s = torch.stack([sum(c[i, j] * sample[i, j] for i in range(n_in)) for j in range(n_out)])
        square = (s * s).sum(-1, keepdim=True)
        poses.append(s * square / (1 + square) / torch.sqrt(square + 1e-8))
        couplings.append(c)
    return (
        torch.stack(poses).reshape(*lead, n_out, size),
        torch.stack(couplings).reshape(*lead, n_in, n_out),
    )


class StarRouting(tc.layers.Routing):
    def __init__(self, *, sharpness: float = 1.0):
        super().__init__()
        self.start = sharpness

    def create_parameters(self, *, n_in, n_out, d_out):
        self.sharpness = torch.nn.Parameter(torch.tensor(self.start))

    def forward(self, votes, activation, *, keep="none"):
        return star_routing(votes, sharpness=self.sharpness, keep=keep)


@pytest.fixture(autouse=True)
def _star(monkeypatch):
    monkeypatch.setitem(tc.layers.ROUTINGS, "star", StarRouting)


@pytest.mark.parametrize("option", [{}, {"shyness": 0.3}], ids=str)
def test_it_keeps_the_contract(option):
    routing, reference = (functools.partial(each, **option) for each in (star_routing, twin))
    errors = assert_routing_contract(routing, reference=reference)
    assert errors["parity"] <= 1e-10
    assert errors["keep"] == 0


def test_every_layer_knows_it():
    dense = tc.layers.DenseCapsules(n_in=6, d_in=4, n_out=3, d_out=4, routing="star")
    assert dense(tc.Capsules(torch.rand(2, 6, 4))).parents.pose.shape == (2, 3, 4)
    windows = tc.layers.ConvCapsules(
        child_grid=(4, 5, 2), d_in=4, types=3, d_out=4, routing=StarRouting(sharpness=2.0)
    )
    routed = windows(tc.Capsules(torch.rand(2, 40, 4)), keep="last")
    assert routed.steps[0].coupling.shape == (2, 2 * 3, 18, 3)


def star_by_sample(vote_map, **options):
    """The form without stored votes, one sample at a time."""
    samples = []
    for pose in vote_map.children.pose:
        votes = tc.ops.materialise(vote_map._replace(children=tc.Capsules(pose)))
        samples.append(star_routing(votes, **options))
    return tree_map(lambda *x: None if x[0] is None else torch.stack(x), *samples)


class FusedStarRouting(tc.layers.Routing):
    algorithm = "star"

    def __init__(self, shyness=0.0):
        super().__init__()
        self.shyness = shyness

    def create_parameters(self, *, n_in, n_out, d_out):
        self.sharpness = torch.nn.Parameter(torch.tensor(2.0))

    def options(self):
        return {"sharpness": self.sharpness, "shyness": self.shyness}

    def forward(self, votes, activation, *, keep="none"):
        return star_routing(votes, keep=keep, **self.options())


@pytest.mark.parametrize("shyness", [0.0, 0.3])
def test_a_form_without_stored_votes_is_one_line_more(shyness, monkeypatch):
    """Its option stands in its op, in its twin and in its module; no way to its form names it."""
    monkeypatch.setitem(tc.ops.fused.ROUTINGS, "star", star_by_sample)
    layer = tc.layers.DenseCapsules(
        n_in=6, d_in=4, n_out=3, d_out=4, routing=FusedStarRouting(shyness)
    )
    children = tc.Capsules(torch.rand(2, 6, 4))
    found = []
    for backend in ("plain", "fused", "native"):
        tc.layers.use_backend(layer, backend)
        assert isinstance(layer.votes(children), torch.Tensor) == (backend == "plain")
        layer.zero_grad()
        routed = layer(children, keep="last")
        routed.parents.pose.square().sum().backward()
        found.append((routed.parents.pose, routed.steps[0].coupling, layer.weight.grad.clone()))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=1e-6)
    layer.routing.shyness = 0.9  # by the last backend
    assert (layer(children, keep="last").steps[0].coupling - found[0][1]).abs().max() > 1e-3
    # Who has no such line is told so.
    layer.routing.algorithm = ""
    with pytest.raises(tc.TorchcapsError, match="FusedStarRouting has no fused form"):
        layer(children)


def test_a_concurrent_schedule_asks_it_for_a_step():
    layer = tc.layers.DenseCapsules(n_in=6, d_in=4, n_out=3, d_out=4, routing="star")
    with pytest.raises(tc.TorchcapsError, match="StarRouting keeps more than its parents"):
        layer.step(tc.Capsules(torch.rand(2, 6, 4)), None)
