"""Other people's tools see what we see: attributions that add up, and all parameters."""

import pytest
import torch

import torchcaps as tc

IMAGE = (1, 20, 20)
# Imports are in the tests, because the default tier reads this file without the extra `tools`.
pytestmark = pytest.mark.slow


@pytest.fixture
def scores():
    """In float64, for scores are compared with sums of thousands of small numbers."""
    model = tc.create_model("capsnet", image=IMAGE, n_classes=3, width=8, types=2, weight_std=1.0)
    return tc.models.scores_only(model.double().eval())


def test_integrated_gradients_add_up_to_the_change_of_the_score(scores):
    """Their sum is f(x) - f(0), by the fundamental theorem of calculus."""
    from captum.attr import IntegratedGradients

    images = torch.rand(3, *IMAGE, dtype=torch.float64)
    pixels = IntegratedGradients(scores).attribute(images, target=1, n_steps=400)
    with torch.no_grad():
        change = scores(images)[:, 1] - scores(torch.zeros_like(images))[:, 1]
    assert float(change.abs().min()) > 1e-3
    torch.testing.assert_close(pixels.flatten(1).sum(1), change, rtol=0, atol=1e-4)


def test_grad_cam_is_the_map_weighed_by_its_mean_gradients(scores):
    from captum.attr import LayerGradCam

    images, kept = torch.rand(2, *IMAGE, dtype=torch.float64), []
    backbone = scores.model.backbone
    places = LayerGradCam(scores, backbone).attribute(images, target=2)
    handle = backbone.register_forward_hook(lambda module, given, out: kept.append(out))
    asked = scores(images)[:, 2].sum()
    handle.remove()
    (slope,) = torch.autograd.grad(asked, kept[0])
    weighed = kept[0].detach() * slope.mean((2, 3), keepdim=True)
    expected = weighed.sum(1, keepdim=True)
    assert float(expected.abs().max()) > 1e-6
    torch.testing.assert_close(places, expected, rtol=1e-9, atol=1e-15)


def test_torchinfo_counts_our_parameters(scores):
    import torchinfo

    found = torchinfo.summary(scores, verbose=0)
    assert found.total_params == sum(weight.numel() for weight in scores.parameters())
