"""The gradient of couplings to how likely parents are."""

import pytest
import torch

from torchcaps.ops import fused, native
from torchcaps.ops.fused.likely import Likely, moves
from torchcaps.types import Capsules, VoteMap


def test_both_parts_are_the_gradient_of_the_logarithm_of_a_softmax():
    torch.manual_seed(0)
    likely = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    logits = likely.unsqueeze(-2) + torch.randn(2, 3, 5, 4, dtype=torch.float64)
    log_r, seen = logits.log_softmax(-1), logits.logsumexp(-1)
    moved = moves(Likely(likely, log_r.detach()))
    both = moved.of_children.unsqueeze(-1) + moved.of_parents.unsqueeze(-2)
    assert all((x == 0).all() for x in moved)
    for true, fast in ((log_r, both), (seen, moved.of_seen)):
        of = torch.randn_like(true)
        (expected,) = torch.autograd.grad((true * of).sum(), likely, retain_graph=True)
        (found,) = torch.autograd.grad((fast * of).sum(), likely, retain_graph=True)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("backend", [fused, native])
@pytest.mark.parametrize("costs", [(-20.0, 20.0), (20.0, 60.0)])
def test_costs_have_no_gradient_where_one_parent_has_every_child(backend, costs):
    """In float32 the sums of what is zero were rounding, 5e-6 to 2e-5."""
    torch.manual_seed(0)
    beta_u = torch.tensor(costs, requires_grad=True)
    children = Capsules(torch.randn(120, 6, 3), torch.rand(120, 6) + 0.1)
    vote_map = VoteMap(children, torch.randn(6, 2, 5, 3))
    options = {"iterations": 2, "lambda_": 1.0, "lambda_schedule": "constant"}
    routed = backend.em_routing(vote_map, beta_a=torch.zeros(2), beta_u=beta_u, **options)
    pose = routed.parents.pose
    (pose * torch.randn(pose.shape)).sum().backward()
    assert beta_u.grad.abs().max() < 1e-12


def test_a_parent_owes_nothing_to_a_child_that_gives_it_nothing():
    """However large the gradient of that child is, whose rounding was larger than this gradient."""
    likely = torch.zeros(1, 1, 2, requires_grad=True)
    gradients = [1.0, 9_999_999.0, -3_333_333.0, -3_333_333.0, -3_333_334.0]
    log_r = torch.full((1, 1, 5, 2), -200.0)
    log_r[..., 0, 0] = log_r[..., 1:, 1] = 0.0
    moved = moves(Likely(likely, log_r))
    (found,) = torch.autograd.grad((moved.of_children * torch.tensor(gradients)).sum(), likely)
    assert found.flatten().tolist() == [-1.0, 1.0]
