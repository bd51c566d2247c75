"""WholeMapConv2d is nn.Conv2d, whichever way it takes."""

from unittest import mock

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from torchcaps.layers import use_backend
from torchcaps.layers.convolution import WholeMapConv2d
from torchcaps.models import create_model


def pair():
    ours = WholeMapConv2d(6, 3, 5)
    theirs = nn.Conv2d(6, 6, (3, 5), groups=6)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def direct(convolution, x):
    """What comes out, and how many convolutions it took."""
    with mock.patch.object(nn.Conv2d, "_conv_forward", autospec=True) as convolve:
        convolve.side_effect = lambda self, x, *rest: nn.functional.conv2d(
            x, *rest, groups=self.groups
        )
        y = convolution(x)
    return y, convolve.call_count


LAYOUTS = {"contiguous": torch.contiguous_format, "last": torch.channels_last}


@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_values_and_gradients(layout, count):
    ours, theirs = (each.double() for each in pair())
    x = torch.randn(count, 6, 3, 5, dtype=torch.float64).contiguous(memory_format=layout)
    y, convolutions = direct(ours, x.requires_grad_())
    assert (y.shape, convolutions) == ((count, 6, 1, 1), 0)
    assert y.is_contiguous()
    noise = torch.randn_like(y)
    results = []
    for net, made in ((ours, y), (theirs, theirs(x))):
        of = torch.autograd.grad((made * noise).sum(), [x, *net.parameters()])
        results.append([made, *of])
    assert_close(*results, rtol=0, atol=1e-12)


def test_without_a_bias():
    ours, theirs = pair()
    ours.bias = theirs.bias = None
    x = torch.randn(2, 6, 3, 5)
    assert_close(direct(ours, x)[0], theirs(x), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 6, 4, 6), (6, 3, 5), (2, 5, 3, 5), (2, 6, 2, 5)], ids=str)
def test_other_maps_end_as_a_convolution_ends(shape):
    found = []
    for convolution in pair():
        try:
            found.append(convolution(torch.ones(shape)))
        except RuntimeError as error:
            found.append(str(error))
    assert type(found[0]) is type(found[1])
    if isinstance(found[0], str):
        assert found[0] == found[1]
    else:
        assert torch.equal(*found)


def test_autocast_backends_and_tracers_see_a_convolution():
    ours, _ = pair()
    x = torch.rand(2, 6, 3, 5)
    assert direct(ours, x)[1] == 0
    with torch.autocast("cpu", torch.bfloat16):
        y, convolutions = direct(ours, x)
    assert (convolutions, y.dtype) == (1, torch.bfloat16)
    assert direct(pair()[0].bfloat16(), x.bfloat16())[1] == 1
    use_backend(ours, "plain")
    assert direct(ours, x)[1] == 1
    use_backend(ours, "auto")
    assert direct(ours, x)[1] == 0
    whole = torch.compile(ours, fullgraph=True, backend="eager")
    assert torch.equal(whole(x), ours(x))
    program = torch.export.export(nn.Sequential(ours), (x,))
    assert "conv2d" in program.graph_module.code


def test_networks_with_one_capsule_a_channel_have_it():
    for name in ("efficient_capsnet", "mitterreiter_5x16"):
        kinds = [type(each) for each in create_model(name).modules()]
        assert WholeMapConv2d in kinds, name
