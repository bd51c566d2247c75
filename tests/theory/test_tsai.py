"""[tsai2020] §3: parents of 0 give uniform couplings; §5: a matrix pose needs O(d) weights for a
pair of capsules, a vector pose O(d²)."""

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.ops import inverted_routing, inverted_step, materialise
from torchcaps.types import Capsules, VoteMap


# Twenty layers of each precision.
@pytest.mark.parametrize("n_out", [*range(1, 17), 31, 49, 100, 255])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_parents_of_zero_make_the_first_iteration_uniform(dtype, n_out):
    votes = 100 * torch.randn(2, 5, n_out, 4, dtype=dtype)
    uniform = torch.full((2, 5, n_out), 1 / n_out, dtype=dtype)
    zero = inverted_step(votes, torch.zeros(2, n_out, 4, dtype=dtype))
    first = inverted_routing(votes, keep="steps").steps[0]
    assert torch.equal(first.coupling, uniform)
    assert torch.equal(zero.coupling, uniform)
    assert torch.equal(first.parents.pose, zero.parents.pose)


def weight_per_pair(pose, d):
    """How many numbers a pair has in the only weight that gives parents of d components."""
    children = Capsules(torch.randn(3, d))
    side = int(d**0.5) if pose == "matrix" else d
    weight = torch.randn(3, 2, side, side)
    assert materialise(VoteMap(children, weight, pose=pose)).shape == (3, 2, d)
    for other in (side - 1, side + 1):
        with pytest.raises(TorchcapsError):
            materialise(VoteMap(children, torch.randn(3, 2, other, other), pose=pose))
    return weight[0, 0].numel()


@pytest.mark.parametrize("d", [4, 16, 36, 64])
def test_a_matrix_pose_needs_d_weights_a_pair_and_a_vector_pose_their_square(d):
    assert weight_per_pair("matrix", d) == d
    assert weight_per_pair("vector", d) == d**2
