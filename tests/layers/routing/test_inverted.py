"""Inverted routing as a module: its parameters, and what it hands to its op."""

import pytest
import torch

from layers.routing.bound import VOTES, assert_equal, bound, random_parameters
from torchcaps.layers import DenseCapsules, InvertedRouting, use_backend
from torchcaps.types import Capsules


def test_parameters_of_inverted_routing_at_the_start():
    full = bound(InvertedRouting(activations=True, start="learned"))
    found = {name: tuple(p.shape) for name, p in full.named_parameters()}
    assert found == {
        "norm.weight": (2,),
        "norm.bias": (2,),
        "start": (4, 2),
        "beta_a": (4,),
        "beta_u": (4,),
    }
    assert not full.beta_a.any()
    assert not full.beta_u.any()
    assert full.norm.eps == 1e-5
    assert dict(bound(InvertedRouting(layer_norm=False)).named_parameters()) == {}
    wide = InvertedRouting(start="learned")
    wide.bind(n_in=2, n_out=100, d_out=64)
    assert float(wide.start.detach().std()) == pytest.approx(1 / 8, rel=0.05)
    assert InvertedRouting().gives_activations is False
    assert full.normalised_over == "parents"


def test_a_random_start_is_drawn_once_and_stays():
    """Footnote 1: noise in place of zero, which no gradient moves and a saved state keeps."""
    routing = InvertedRouting(start="random")
    routing.bind(n_in=2, n_out=100, d_out=64)
    assert dict(routing.named_parameters()).keys() == {"norm.weight", "norm.bias"}
    assert routing.state_dict().keys() == {"norm.weight", "norm.bias", "start"}
    assert float(routing.start.std()) == pytest.approx(1 / 8, rel=0.05)
    votes = torch.randn(2, 100, 64)
    # The first couplings are those of the start, not even.
    first = routing(votes, None, keep="steps").steps[0].coupling
    torch.testing.assert_close(first, (votes * routing.start).sum(-1).softmax(-1))
    assert torch.equal(first, routing(votes, None, keep="steps").steps[0].coupling)


def test_the_guard_of_the_norm_is_that_of_the_op_with_dropout_and_without():
    votes = torch.randn(VOTES)
    for share in (0.0, 0.4):
        routing = bound(InvertedRouting(dropout=share))
        before = drawn(lambda routing=routing: routing(votes, None)).parents.pose
        routing.norm.eps = 1.0
        assert torch.equal(drawn(lambda routing=routing: routing(votes, None)).parents.pose, before)


def drawn(call):
    torch.manual_seed(3)
    return call()


@pytest.mark.parametrize("layer_norm", [True, False])
def test_dropout_is_on_parents_before_they_are_normalised(layer_norm):
    votes = torch.randn(VOTES)
    routing = bound(InvertedRouting(layer_norm=layer_norm, iterations=3, dropout=0.4))
    random_parameters(routing)
    routed = drawn(lambda: routing(votes, None, keep="steps"))

    def by_hand():
        pose, steps = None, []
        for _ in range(3):
            logits = torch.zeros(VOTES[:-1])
            if pose is not None:
                logits = (votes * pose.unsqueeze(-3)).sum(-1)
            c = logits.softmax(-1)
            pose = torch.nn.functional.dropout((c.unsqueeze(-1) * votes).sum(-3), 0.4)
            pose = routing.norm(pose) if layer_norm else pose
            steps.append((c, pose))
        return steps

    found = [(step.coupling, step.parents.pose) for step in routed.steps]
    torch.testing.assert_close(found, drawn(by_hand))
    if not layer_norm:
        assert 0.2 < float((routed.parents.pose == 0).double().mean()) < 0.6
    assert drawn(lambda: routing(votes, None)).parents.pose.equal(routed.parents.pose)
    assert routing(votes, None, keep="last").steps[-1].parents.pose.shape == (3, 4, 2)


def test_nothing_is_dropped_in_evaluation():
    votes = torch.randn(VOTES)
    dropping, plain = (bound(InvertedRouting(dropout=share)).eval() for share in (0.4, 0.0))
    assert_equal(dropping(votes, None, keep="steps"), plain(votes, None, keep="steps"))


def test_every_backend_drops_the_same():
    children = Capsules(torch.randn(5, 7, 3, requires_grad=True))
    found = {}
    for backend in ("plain", "fused"):
        torch.manual_seed(0)
        routing = InvertedRouting(iterations=3, dropout=0.4)
        layer = DenseCapsules(n_in=7, d_in=3, n_out=4, d_out=2, routing=routing)
        use_backend(layer, backend)
        torch.manual_seed(3)
        pose = layer(children, keep="steps").parents.pose
        (gradient,) = torch.autograd.grad(pose.square().sum(), layer.weight)
        found[backend] = pose, gradient
    torch.testing.assert_close(found["plain"], found["fused"])


@pytest.mark.parametrize("backend", ["fused", "native"])
def test_a_step_without_stored_votes_is_a_step(backend):
    layer = DenseCapsules(n_in=7, d_in=3, n_out=4, d_out=2, routing=InvertedRouting())
    children, parents = Capsules(torch.randn(5, 7, 3)), None
    for _ in range(2):
        use_backend(layer, "plain")
        expected = layer.step(children, parents)
        use_backend(layer, backend)
        step = layer.step(children, parents, keep="last")
        torch.testing.assert_close(step.coupling, expected.coupling)
        torch.testing.assert_close(step.parents.pose, expected.parents.pose)
        unkept = layer.step(children, parents)
        assert unkept.coupling.shape == (0,)
        assert torch.equal(unkept.parents.pose, step.parents.pose)
        parents = expected.parents
