"""Scores by `optimise_for_inference` are the network's own."""

import pytest
import torch

import torchcaps as tc
from recorded_graph import graphs_on_a_processor


@pytest.fixture
def network():
    torch.manual_seed(0)
    small = {"width": 16, "types": 4, "d_primary": 4, "d_class": 8}
    network = tc.create_model("capsnet", image=(1, 20, 20), n_classes=3, **small).eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(2)
        scores = network(images(4)).scores
    # Far from 0, where any scores would be alike.
    assert 0.05 < scores.min() < scores.max() < 0.95
    return network


def images(count):
    return torch.rand(count, 1, 20, 20, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("count", [1, 4, 5, 11])
def test_any_number_of_images_has_the_scores_of_the_network(network, count):
    fast = tc.optimise_for_inference(network.train(), images(4))
    assert not network.training
    assert fast.apart < 1e-6
    with torch.no_grad():
        expected = network(images(count)).scores
    found = fast(images(count))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert not found.requires_grad


def test_weights_that_are_loaded_later_count(network):
    fast = tc.optimise_for_inference(network, images(2))
    before = fast(images(2))
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(0.8)
        expected = network(images(2)).scores
    assert (expected - before).abs().max() > 1e-3
    torch.testing.assert_close(fast(images(2)), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_graph_scores_any_number_of_images_by_the_weights_of_the_day(
    network, monkeypatch, precision
):
    """By operators that are repeated on a processor, whose large kernels are laid out elsewhere."""
    made, batch = graphs_on_a_processor(monkeypatch), images(4)
    close = {"rtol": 0, "atol": 1e-6 if precision == "float32" else 0.02}
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    fast = tc.optimise_for_inference(network, batch, precision=precision)
    with torch.inference_mode():
        fast._capture(batch.clone())
    for factor in (1, 0.8):
        with torch.no_grad():
            for weight in network.parameters():
                weight.mul_(factor)
            expected = network(images(11)).scores
        torch.testing.assert_close(fast(images(11)), expected, **close)
    assert made[0].replays == 2 * 3


def test_bfloat16_says_how_far_it_is(network):
    fast = tc.optimise_for_inference(network, images(4), precision="bfloat16")
    with torch.no_grad():
        apart = float((fast(images(4)) - network(images(4)).scores).abs().max())
    assert 1e-6 < apart < 0.05
    assert fast.apart == pytest.approx(apart, rel=1e-3)
    assert repr(fast) == f"Fast(batches of 4, bfloat16, apart={fast.apart:.1e})"
    assert fast(images(4)).dtype == torch.float32


@pytest.mark.compile
@pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning")
def test_compiled_it_is_the_same_and_is_compiled_once(network):
    fast = tc.optimise_for_inference(network, images(4), compiled=True)
    torch._dynamo.utils.counters.clear()
    torch.testing.assert_close(
        fast(images(7)), network(images(7)).scores.detach(), rtol=0, atol=1e-5
    )
    assert not torch._dynamo.utils.counters["stats"]
