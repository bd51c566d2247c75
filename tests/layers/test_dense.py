"""Dense capsules: whose matrix makes a vote, what is added to votes."""

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.layers import (
    ConvCapsules,
    DenseCapsules,
    EMRouting,
)
from torchcaps.types import Capsules

SIZES = {"n_in": 5, "d_in": 3, "n_out": 4, "d_out": 2}


def children(*lead):
    return Capsules(torch.randn(*lead, SIZES["n_in"], SIZES["d_in"], dtype=torch.float64))


def test_weights_are_normal_times_their_deviation():
    torch.manual_seed(3)
    expected = torch.randn(5, 4, 2, 3) * 0.25
    torch.manual_seed(3)
    assert torch.equal(DenseCapsules(**SIZES, weight_std=0.25).weight, expected)
    torch.manual_seed(3)
    assert torch.equal(DenseCapsules(**SIZES).weight, expected / 0.25 * 0.1)


@pytest.mark.parametrize("pose", ["vector", "matrix"])
@pytest.mark.parametrize("sharing", ["none", "type", "all"])
def test_whose_matrix_makes_a_vote(sharing, pose):
    # A grid of 2×3 positions with two types: child i has type i % 2.
    d_out = 4 if pose == "matrix" else 3
    layer = DenseCapsules(
        n_in=12, d_in=4, n_out=2, d_out=d_out, sharing=sharing, child_grid=(2, 3, 2), pose=pose
    ).double()
    matrix = (2, 2) if pose == "matrix" else (3, 4)
    kinds = {"none": (12,), "type": (2,), "all": ()}[sharing]
    assert layer.weight.shape == (*kinds, 2, *matrix)
    u = Capsules(torch.randn(2, 12, 4, dtype=torch.float64))
    votes = layer.votes(u)
    assert votes.shape == (2, 12, 2, d_out)
    for b in range(2):
        for i in range(12):
            own = {"none": i, "type": i % 2, "all": ...}[sharing]
            for j in range(2):
                w = layer.weight[own][j]
                if pose == "vector":
                    expected = w @ u.pose[b, i]
                else:
                    expected = (u.pose[b, i].reshape(2, 2) @ w).flatten()
                torch.testing.assert_close(votes[b, i, j], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("pose", "places"), [("vector", (0, 1)), ("matrix", (1, 3))])
def test_coordinates_are_shares_of_the_grid_for_every_parent_and_image(pose, places):
    # 2 rows and 3 columns, centres of cells: rows 1/4, 3/4; columns 1/6, 3/6, 5/6.
    options = {"n_in": 12, "d_in": 4, "n_out": 2, "d_out": 4, "child_grid": (2, 3, 2)}
    layer = DenseCapsules(**options, sharing="type", pose=pose, coordinates=True).double()
    u = Capsules(torch.randn(2, 12, 4, dtype=torch.float64))
    added = layer.votes(u)
    layer.coordinates = False
    added = (added - layer.votes(u)).detach()
    where = [(row, column) for row in (1 / 4, 3 / 4) for column in (1 / 6, 3 / 6, 5 / 6)]
    expected = torch.zeros(12, 4, dtype=torch.float64)
    for i in range(12):
        expected[i, list(places)] = torch.tensor(where[i // 2], dtype=torch.float64)
    expected = expected.unsqueeze(1).expand_as(added)
    torch.testing.assert_close(added, expected, rtol=0, atol=1e-12)


def test_a_vote_bias_belongs_to_a_parent():
    layer = DenseCapsules(**SIZES, vote_bias=True).double()
    assert torch.equal(layer.vote_bias, torch.full((4, 2), 0.1).double())
    with torch.no_grad():
        layer.vote_bias.copy_(torch.randn(4, 2))
    bare = DenseCapsules(**SIZES).double()
    bare.weight = layer.weight
    u = children(2)
    difference = layer.votes(u) - bare.votes(u)
    expected = layer.vote_bias.expand_as(difference)
    torch.testing.assert_close(difference, expected, rtol=0, atol=1e-12)
    assert bare.vote_bias is None
    assert "vote_bias" not in dict(bare.named_parameters())


def test_coordinates_of_ones_own_are_added_as_they_are():
    own = torch.randn(6, 5)
    sizes = {"n_in": 6, "d_in": 4, "n_out": 3, "d_out": 5}
    bare, placed = DenseCapsules(**sizes), DenseCapsules(**sizes, coordinates=own)
    placed.load_state_dict(bare.state_dict() | {"own_coordinates": own})
    children = Capsules(torch.randn(2, 6, 4))
    found = placed.votes(children)
    torch.testing.assert_close(found, bare.votes(children) + own.unsqueeze(1))
    assert "own_coordinates" not in bare.state_dict()


def test_a_routing_that_a_layer_refused_is_free():
    routing = EMRouting(compete="all")
    with pytest.raises(TorchcapsError):
        DenseCapsules(n_in=4, d_in=4, n_out=2, d_out=4, routing=routing)
    ConvCapsules(child_grid=(3, 3, 2), d_in=4, types=3, d_out=4, kernel=2, routing=routing)
