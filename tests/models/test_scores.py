"""Scores alone: the same numbers, differentiable, traced by torch.jit."""

import pytest
import torch

import torchcaps as tc

IMAGE = (1, 20, 20)


@pytest.fixture
def model():
    return tc.create_model("peer_deep_dynamic", image=IMAGE, n_classes=3).eval()


def test_the_answer_is_the_scores_of_the_same_weights(model):
    images = torch.rand(2, *IMAGE)
    scores = tc.models.scores_only(model)
    assert torch.equal(scores(images), model(images).scores)
    assert {id(p) for p in scores.parameters()} == {id(p) for p in model.parameters()}


def test_every_class_has_a_gradient_in_the_pixels(model):
    """What attributions by gradients ask for."""
    images = torch.rand(2, *IMAGE, requires_grad=True)
    for k in range(3):
        (slope,) = torch.autograd.grad(tc.models.scores_only(model)(images)[:, k].sum(), images)
        assert float(slope.abs().sum()) > 0


def test_it_is_in_the_mode_of_the_network(model):
    """It said that it trains, after scores_only(model.eval()) as the examples have it."""
    wrapped = tc.models.scores_only(model.eval())
    assert not wrapped.training
    wrapped.train()
    assert model.training
    wrapped.eval()
    assert not model.training
    assert tc.models.scores_only(model.train()).training
    model.eval()


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_jit_traces_it(model):
    images, others = torch.rand(2, *IMAGE), torch.rand(2, *IMAGE)
    traced = torch.jit.trace(tc.models.scores_only(model), (images,))
    torch.testing.assert_close(traced(others), model(others).scores)
