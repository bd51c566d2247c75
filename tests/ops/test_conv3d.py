"""3-D convolutional routing: its laws; numbers on paper are in on_paper.toml."""

import pytest
import torch

from ops.random_votes import random_votes
from torchcaps.ops import conv3d_routing, dynamic_routing

GRID = (2, 3, 2)  # not square, more than one type
SQUASHES = ["map", "pose"]


def types_of(pose):
    """Poses [j, d] as [type, h * w * d]."""
    return pose.reshape(*GRID, -1).movedim(2, 0).flatten(1)


def test_a_map_is_shorter_than_one_and_keeps_its_direction():
    votes, bias = 5 * random_votes(5, 12, 3), random_votes(2, 3)
    parents, (step,), _ = conv3d_routing(votes, parent_grid=GRID, bias=bias, keep="last")
    mixed = torch.einsum("ij,ijd->jd", step.coupling, votes) + bias.repeat(6, 1)
    v, s = types_of(parents.pose), types_of(mixed)
    square = s.square().sum(-1)
    torch.testing.assert_close(v.norm(dim=-1), square / (1 + square), rtol=0, atol=1e-7)
    cosine = torch.nn.functional.cosine_similarity(v, s, dim=-1)
    torch.testing.assert_close(cosine, torch.ones_like(cosine), rtol=0, atol=1e-12)


def test_types_do_not_share_a_norm_and_positions_do():
    votes = random_votes(5, 12, 3)
    louder = votes.clone()
    louder[:, 0] *= 7  # row 0, column 0, type 0
    before, after = (
        types_of(conv3d_routing(v, parent_grid=GRID, iterations=1).parents.pose)
        for v in (votes, louder)
    )
    assert torch.equal(before[1], after[1])
    assert (before[0] - after[0]).abs().min() > 1e-4


@pytest.mark.parametrize("grid", [GRID, (1, 1, 12), (12, 1, 1)], ids=str)
def test_one_norm_a_parent_is_dynamic_routing_with_a_bias_a_type(grid):
    votes, bias = random_votes(2, 5, 12, 3), random_votes(grid[2], 3)
    ours = conv3d_routing(votes, parent_grid=grid, bias=bias, squash_over="pose", keep="last")
    theirs = dynamic_routing(votes, bias=bias.repeat(12 // grid[2], 1), keep="last")
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-14)


def test_on_one_position_both_squashes_are_one():
    votes = random_votes(2, 5, 4, 3)
    a, b = (conv3d_routing(votes, parent_grid=(1, 1, 4), squash_over=over) for over in SQUASHES)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-14)


def test_positions_change_places_freely():
    votes, bias, order = random_votes(5, 12, 3), random_votes(2, 3), torch.randperm(6)
    moved = votes.unflatten(1, (6, 2))[:, order].flatten(1, 2)
    before, after = (
        conv3d_routing(v, parent_grid=GRID, bias=bias).parents.pose.unflatten(0, (6, 2))
        for v in (votes, moved)
    )
    torch.testing.assert_close(before[order], after, rtol=0, atol=1e-12)


def test_without_a_bias_minus_x_gives_minus_y():
    votes = random_votes(5, 12, 3)
    there, back = (conv3d_routing(v, parent_grid=GRID).parents.pose for v in (votes, -votes))
    assert torch.equal(there, -back)
