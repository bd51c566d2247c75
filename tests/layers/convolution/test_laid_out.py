"""Convolutions predict a few images by weights that are laid out once."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from torchcaps.layers import use_backend
from torchcaps.layers.convolution import LargeConv2d, SmallConv2d
from torchcaps.ops.convolution.laid_out import LAID_OUT, in_graphs


@pytest.mark.parametrize("make", [LargeConv2d, SmallConv2d])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("options", [{"stride": 2}, {"padding": 4, "groups": 2}, {"dilation": 2}])
def test_one_image_is_predicted_by_weights_laid_out_once(make, options, bias):
    ours = make(32, 24, 9 if make is LargeConv2d else 3, **options, bias=bias)
    for images in (1, 4):
        x = torch.rand(images, 32, 20, 20)
        with torch.inference_mode():
            y, again = ours(x), ours(x)
        assert id(ours.weight) in LAID_OUT
        assert torch.equal(y, again)
        # Sums of 2,592 products, whose absolute values add up to some 13.
        assert_close(y, nn.Conv2d.forward(ours, x).detach(), rtol=0, atol=5e-6)


CHANGES = {
    "in place": lambda conv: conv.weight.mul_(2),
    "assigned": lambda conv: conv.load_state_dict(
        {name: 2 * x for name, x in conv.state_dict().items()}, assign=True
    ),
    "swapped": lambda conv: setattr(conv.weight, "data", 2 * conv.weight.data),
}


@pytest.mark.parametrize("counts", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_weights_are_laid_out_again(change, counts):
    ours, x = LargeConv2d(32, 24, 9, bias=False), torch.rand(1, 32, 20, 20)
    with torch.inference_mode():
        before = ours(x)
    with counts():
        change(ours)
    with torch.inference_mode():
        assert_close(ours(x), 2 * before, rtol=0, atol=1e-5)


def test_weights_that_are_laid_out_travel_with_no_copy():
    ours, x = LargeConv2d(32, 24, 9), torch.rand(1, 32, 20, 20)
    with torch.inference_mode():
        expected = ours(x)
        copied = copy.deepcopy(ours)
        assert_close(copied(x), expected)
    file = io.BytesIO()
    torch.save(ours, file)
    assert set(ours.state_dict()) == {"weight", "bias"}


def test_what_is_laid_out_goes_with_its_weights():
    ours = SmallConv2d(32, 24, 3)
    with torch.inference_mode():
        ours(torch.rand(1, 32, 20, 20))
    weight = id(ours.weight)
    assert weight in LAID_OUT
    del ours
    assert weight not in LAID_OUT


@pytest.mark.parametrize(
    "spoil",
    [
        lambda conv, x: (conv, x.expand(5, -1, -1, -1)),
        lambda conv, x: (conv.double(), x.double()),
        lambda conv, x: (use_backend(conv, "plain"), (conv, x))[1],
    ],
    ids=["many", "float64", "plain"],
)
def test_others_are_convolved_as_ever(spoil):
    conv, x = spoil(*(LargeConv2d(32, 24, 9), torch.rand(1, 32, 20, 20)))
    with torch.inference_mode():
        assert torch.equal(conv(x), nn.Conv2d.forward(conv, x))
    assert id(conv.weight) not in LAID_OUT


def test_a_graph_calls_for_what_is_laid_out_and_sees_changed_weights():
    """By a backend that compiles nothing; what Inductor makes of it is a test of its own tier."""
    called = []

    def noting(graph, _):
        called.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    ours, x = LargeConv2d(32, 24, 9, bias=False), torch.rand(2, 32, 20, 20)
    compiled = torch.compile(ours, backend=noting, fullgraph=True)
    with torch.inference_mode():
        before = compiled(x)
        known = LAID_OUT[id(ours.weight)]
        assert torch.equal(before, ours(x))
        assert LAID_OUT[id(ours.weight)] is known
    operator = "torchcaps.laid_out_convolution.default"
    assert operator in called
    assert id(ours.weight) in LAID_OUT
    with torch.no_grad():
        ours.weight.mul_(2)
        assert_close(compiled(x), 2 * before, rtol=0, atol=1e-5)
    called.clear()
    assert compiled(x).requires_grad
    assert operator not in called


def test_it_is_an_operator_as_pytorch_has_them():
    x, weight = torch.rand(2, 6, 12, 12), torch.rand(8, 3, 5, 5)
    with torch.no_grad():
        torch.library.opcheck(in_graphs, (x, weight, None, [2, 2], [2, 2], [1, 1], 2))
