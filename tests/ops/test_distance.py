"""Distance routing: its laws; numbers on paper are in on_paper.toml."""

import pytest
import torch

from ops.test_routing_laws import drawn
from torchcaps.ops import distance_routing

# Above the length of every vote here: nothing is shortened.
LONG = torch.tensor(1e3, dtype=torch.float64)


def near_and_average(n_out):
    """One child: without a squash v_j = û_j/J, so d_j = ‖û_j‖ (J − 1)/J. The first parent is at
    distance 50, the others at 100."""
    votes = torch.full((1, n_out, 1), 100.0, dtype=torch.float64)
    votes[:, 0] = 50
    return votes * n_out / (n_out - 1)


@pytest.mark.parametrize(("n_out", "numerator"), [(2, 2.197), (10, 4.394), (32, 5.631)])
def test_a_parent_at_half_the_mean_distance_gets_probability_p(n_out, numerator):
    votes = near_and_average(n_out)
    mean = torch.tensor([100.0], dtype=torch.float64)
    for p in (0.9, 0.6):
        routed = distance_routing(
            votes, LONG, iterations=2, scale=mean, p=p, squash="none", keep="last"
        )
        coupling = routed.steps[0].coupling[0]
        others = [pytest.approx((1 - p) / (n_out - 1), abs=1e-9)] * (n_out - 1)
        assert coupling.tolist() == [pytest.approx(p, abs=1e-9), *others]
        if p == 0.9:
            assert (coupling[0] / coupling[1]).log().item() == pytest.approx(numerator, abs=1e-3)


@pytest.mark.parametrize(
    ("vote", "length", "expected", "by_vote", "by_length"),
    [
        # longer: the slope along the vote is gone, that across it is 2.5/5; the length moves it
        ((3.0, 4.0), 2.5, (1.5, 2.0), ((0.32, -0.24), (-0.24, 0.18)), (0.6, 0.8)),
        ((3.0, 4.0), 0.0, (0.0, 0.0), ((0.0, 0.0), (0.0, 0.0)), (0.6, 0.8)),
        # so long that no number holds its square
        ((3e200, 4e200), 2.5, (1.5, 2.0), ((0.0, 0.0), (0.0, 0.0)), (0.6, 0.8)),
        # shorter, and nothing at all: as they are
        ((0.3, 0.4), 2.5, (0.3, 0.4), ((1.0, 0.0), (0.0, 1.0)), (0.0, 0.0)),
        ((3e-9, 4e-9), 1e-8, (3e-9, 4e-9), ((1.0, 0.0), (0.0, 1.0)), (0.0, 0.0)),
        # below SHORTEST: as they are, even where the child is nothing
        ((6e-18, 8e-18), 0.0, (0.0, 0.0), ((0.0, 0.0), (0.0, 0.0)), (0.6, 0.8)),
        ((6e-19, 7e-19), 0.0, (6e-19, 7e-19), ((1.0, 0.0), (0.0, 1.0)), (0.0, 0.0)),
        ((0.0, 0.0), 2.5, (0.0, 0.0), ((1.0, 0.0), (0.0, 1.0)), (0.0, 0.0)),
        ((0.0, 0.0), 0.0, (0.0, 0.0), ((1.0, 0.0), (0.0, 1.0)), (0.0, 0.0)),
    ],
)
def test_votes_are_no_longer_than_their_child_on_paper(vote, length, expected, by_vote, by_length):
    # One child, one parent, no squash: the pose is the rescaled vote.
    votes = torch.tensor(vote, dtype=torch.float64, requires_grad=True)
    activation = torch.tensor([length], dtype=torch.float64, requires_grad=True)

    def pose(votes, activation):
        shaped = votes.view(1, 1, 2)
        return distance_routing(shaped, activation, iterations=1, squash="none")[0].pose.view(2)

    assert pose(votes, activation).tolist() == pytest.approx(expected, rel=1e-12, abs=0)
    for k in range(2):
        slopes = torch.autograd.grad(pose(votes, activation)[k], (votes, activation))
        assert slopes[0].tolist() == pytest.approx(by_vote[k], abs=1e-12)
        assert slopes[1].tolist() == pytest.approx([by_length[k]], abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_measured_distances_given_back_change_no_bit(dtype):
    tensors = drawn("distance", (4, 5, 3, 4), "activation")
    votes, lengths = (x.to(dtype) for x in tensors.values())
    measured = distance_routing(votes, lengths, scale="batch", keep="last")
    stored = distance_routing(votes, lengths, scale=measured.scale, keep="last")
    assert torch.equal(stored.parents.pose, measured.parents.pose)
    assert torch.equal(stored.steps[0].coupling, measured.steps[0].coupling)
    assert torch.equal(stored.scale, measured.scale)


def test_votes_that_all_meet_their_parent():
    # I = J equal votes without a squash: v_j = (I/J) û_j = û_j, every distance is the guard's 1e-4.
    votes = torch.full((2, 2, 3), 0.3, dtype=torch.float64, requires_grad=True)
    for scale in ("sample", "batch"):
        routed = distance_routing(votes, LONG, scale=scale, squash="none", keep="last")
        assert routed.steps[0].coupling.tolist() == [[0.5, 0.5]] * 2
        assert routed.scale.tolist() == pytest.approx([1e-4, 1e-4], rel=1e-12)
        total = routed.parents.pose.square().sum() + routed.scale.sum()
        (gradient,) = torch.autograd.grad(total, votes)
        # s_jk² + … = 6 · 0.3² with slope 2 · 0.3 · c_ij, and a distance is flat at its minimum
        torch.testing.assert_close(gradient, torch.full_like(votes, 0.3), rtol=0, atol=1e-12)
