"""EM routing as a module: its costs, what it hands to its op, and poses of unit length."""

import math

import pytest
import torch

from layers.routing.bound import N_IN, N_OUT, D, assert_equal, bound
from torchcaps.layers import ConvCapsules, EMRouting
from torchcaps.layers.routing.em import _norm_of_code, _smooth_norm, _unit
from torchcaps.ops import em_routing
from torchcaps.types import Capsules


def test_em_tells_its_op_which_child_is_in_which_slot():
    routing = EMRouting(compete="all", lambda_=0.3)
    layer = ConvCapsules(child_grid=(3, 3, 1), d_in=2, types=2, d_out=2, kernel=2, routing=routing)
    votes, activation = torch.randn(3, 4, 4, 2, 2), torch.rand(3, 4, 4)
    # Windows of 2×2 on nine positions, one row of slots a window.
    child_id = torch.tensor([[0, 1, 3, 4], [1, 2, 4, 5], [3, 4, 6, 7], [4, 5, 7, 8]])
    op = em_routing(
        votes,
        activation,
        beta_a=routing.beta_a,
        beta_u=routing.beta_u,
        compete="all",
        child_id=child_id,
        lambda_=0.3,
        keep="steps",
    )
    assert_equal(routing(votes, activation, keep="steps"), op)
    assert layer.routing.normalised_over == "parents_and_positions"
    assert bound(EMRouting()).normalised_over == "parents"


def test_costs_start_as_the_code_of_each_variant_has_them():
    def start(window=None, **options):
        torch.manual_seed(2)
        routing = EMRouting(**options)
        routing.bind(n_in=9, n_out=4000, d_out=2, window=window)
        return routing.beta_a.detach(), routing.beta_u.detach()

    for beta in start():
        assert float(beta.mean()) == pytest.approx(0, abs=0.01)
        assert float(beta.std()) == pytest.approx(0.1, rel=0.05)
    a, u = start(variant="official")
    assert (set(a.tolist()), set(u.tolist())) == ({1.0}, {2.0})
    windows = ConvCapsules(
        child_grid=(3, 3, 1), d_in=2, types=2, d_out=2, routing=EMRouting(variant="official")
    )
    assert windows.routing.beta_a.tolist() == windows.routing.beta_u.tolist() == [0.5, 0.5]
    a, u = start(variant="gritzman")
    assert -2000 <= a.min() <= a.max() <= 0
    assert float(a.mean()) == pytest.approx(-1000, abs=50)
    bound_u = math.sqrt(6 / 4002)
    assert 0.95 * bound_u < u.abs().max() <= bound_u


def test_unit_poses_are_as_long_as_their_activations():
    """By hand: the mean (3, 4) of activation 0.5 becomes (0.3, 0.4); a mean of zero stays zero, and
    its gradient finite."""
    mean = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    activation = torch.tensor([0.5, 0.9], dtype=torch.float64, requires_grad=True)
    found = _unit(Capsules(mean, activation), _smooth_norm)
    expected = torch.tensor([[0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(found.pose, expected, rtol=0, atol=1e-9)
    assert torch.equal(found.activation, activation)
    of_mean, of_activation = torch.autograd.grad(found.pose[:, 0].sum(), [mean, activation])
    # a (1 − x²/n²) / n and −a x y / n³ with n = 5; and x / n.
    expected = torch.tensor([0.5 * 0.64 / 5, -0.5 * 12 / 125], dtype=torch.float64)
    torch.testing.assert_close(of_mean[0], expected, rtol=0, atol=1e-9)
    assert of_mean.isfinite().all()
    assert float(of_activation[0]) == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("norm", "slopes"),
    # ε / (m² + ε)^1.5; and 2 ε / (m + 2 ε)² above zero, nothing below.
    [(_smooth_norm, [1e-8 / 1e-3, 1e-8 / 1e-3]), (_norm_of_code, [2e-8 / 1e-2, 0.0])],
)
def test_the_sign_of_one_component_hardly_has_a_gradient_in_public_code(norm, slopes):
    mean = torch.tensor([[0.1], [-0.1]], dtype=torch.float64, requires_grad=True)
    found = _unit(Capsules(mean, torch.ones(2, dtype=torch.float64)), norm).pose
    torch.testing.assert_close(found[:, 0], torch.tensor([1.0, -1.0]).double(), rtol=1e-6, atol=0)
    (gradient,) = torch.autograd.grad(found.sum(), mean)
    assert gradient.flatten().tolist() == pytest.approx(slopes, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("asked", [True, "code"])
def test_unit_poses_are_those_of_the_routing(asked):
    votes, activation = torch.randn(N_IN, N_OUT, D).double(), torch.rand(N_IN).double()
    bare, unit = (bound(EMRouting(unit_poses=unit)).double() for unit in (False, asked))
    unit.load_state_dict(bare.state_dict())
    with torch.no_grad():
        mean, a = bare(votes, activation, keep="steps").parents
        routed = unit(votes, activation, keep="steps")
    by_hand = a.unsqueeze(-1) * mean / mean.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(routed.parents.pose, by_hand, rtol=0, atol=1e-7)
    assert torch.equal(routed.steps[-1].parents.pose, routed.parents.pose)
