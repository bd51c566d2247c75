"""LargeConv2d is nn.Conv2d, whichever way it takes."""

from unittest import mock

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from torchcaps.layers import use_backend
from torchcaps.layers.convolution import LargeConv2d, large
from torchcaps.models import create_model


def ways(convolution, x):
    """What comes out, and how often it went through Fourier space."""
    with mock.patch.object(
        large, "fourier_convolution", wraps=large.fourier_convolution
    ) as counted:
        y = convolution(x)
    return y, counted.call_count


def pair(**options):
    ours = LargeConv2d(32, 24, 9, **options)
    theirs = nn.Conv2d(32, 24, 9, **options)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@pytest.fixture
def cheap(monkeypatch):
    """Small convolutions go the way of large ones."""
    monkeypatch.setattr(large, "WORTH", 0.5)


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("options", [{"stride": 2}, {"padding": 4}, {"stride": (2, 1)}])
def test_many_images_go_through_fourier_space(options, bias):
    ours, theirs = (each.double() for each in pair(**options, bias=bias))
    x = torch.rand(32, 32, 20, 20, dtype=torch.float64)
    y, count = ways(ours, x)
    assert count == 1
    assert_close(y, theirs(x), rtol=0, atol=1e-10)


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"stride": 2}, (1, 32, 20, 20)),
        ({"stride": 2, "groups": 2}, (32, 32, 20, 20)),
        ({"dilation": 2}, (32, 32, 20, 20)),
        ({"padding": 4, "padding_mode": "reflect"}, (32, 32, 20, 20)),
        ({"padding": "same"}, (32, 32, 20, 20)),
        ({}, (32, 20, 20)),
    ],
    ids=["one image", "groups", "dilation", "reflected", "by name", "no batch"],
)
def test_what_does_not_pay_or_fit_goes_directly(options, shape):
    ours, theirs = pair(**options)
    x = torch.rand(shape)
    y, count = ways(ours, x)
    assert count == 0
    assert torch.equal(y, theirs(x))


@pytest.mark.usefixtures("cheap")
def test_wrong_maps_end_in_the_words_of_torch():
    ours, theirs = pair()
    for shape in [(32, 31, 20, 20), (32, 32, 5, 20)]:
        with pytest.raises(RuntimeError) as our_result:
            ours(torch.rand(shape))
        with pytest.raises(RuntimeError) as other:
            theirs(torch.rand(shape))
        assert str(our_result.value) == str(other.value)


@pytest.mark.usefixtures("cheap")
def test_autocast_gives_its_own_dtype_and_near_numbers():
    ours, theirs = pair(stride=2)
    x = torch.rand(32, 32, 20, 20)
    with torch.autocast("cpu", torch.bfloat16):
        y, count = ways(ours, x)
        expected = theirs(x)
    assert count == 1
    assert y.dtype == expected.dtype == torch.bfloat16
    assert_close(y.float(), theirs(x), rtol=0, atol=0.02 * float(expected.detach().abs().max()))
    y.sum().backward()
    assert ours.weight.grad.dtype == torch.float32


def test_capsnet_takes_the_other_way_from_a_batch_of_46_in_training():
    convolution = create_model("capsnet").primary.projection
    assert isinstance(convolution, LargeConv2d)
    assert not convolution.pays(torch.empty(45, 256, 20, 20))
    assert convolution.pays(torch.empty(46, 256, 20, 20))
    with torch.no_grad():
        assert not convolution.pays(torch.empty(46, 256, 20, 20))
    convolution.requires_grad_(False)
    assert not convolution.pays(torch.empty(46, 256, 20, 20))


DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.uint8]


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("is_cast", [False, True])
@pytest.mark.parametrize("of_weight", DTYPES[:3])
@pytest.mark.parametrize("of_maps", DTYPES)
def test_dtypes_are_those_of_a_direct_convolution(of_maps, of_weight, is_cast):
    ours, theirs = (each.to(of_weight) for each in pair(stride=2))
    x = torch.ones(32, 32, 20, 20).to(of_maps)
    found = []
    for convolution in (theirs, ours):
        with torch.autocast("cpu", torch.bfloat16, enabled=is_cast):
            try:
                found.append(convolution(x).dtype)
            except RuntimeError as error:
                found.append(str(error))
    assert found[0] == found[1]


@pytest.mark.usefixtures("cheap")
def test_a_backend_for_all_turns_it_off_and_on():
    model = nn.Sequential(pair(stride=2)[0])
    convolution, x = model[0], torch.rand(32, 32, 20, 20)
    assert ways(convolution, x)[1] == 1
    use_backend(model, "plain")
    assert ways(convolution, x)[1] == 0
    use_backend(model, "auto")
    assert ways(convolution, x)[1] == 1


# torch.func scripts its own formulas.
@pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning")
@pytest.mark.usefixtures("cheap")
def test_transforms_and_tracers_see_a_convolution():
    ours, theirs = pair(stride=2)
    x = torch.rand(32, 32, 20, 20)
    weights = dict(ours.named_parameters())

    def sums(weight, convolution=ours):
        return torch.func.functional_call(convolution, weights | {"weight": weight}, x).sum()

    tangent = torch.rand_like(ours.weight)
    found = torch.func.jvp(sums, (ours.weight,), (tangent,))[1]
    of_weight = torch.func.grad(lambda weight: sums(weight, theirs))(ours.weight)
    assert_close(found, (of_weight * tangent).sum(), rtol=1e-4, atol=0)
    images = torch.func.vmap(ours)(x.unflatten(0, (2, 16)))
    assert_close(images.flatten(0, 1), theirs(x), rtol=0, atol=1e-5)
    traced = torch.jit.trace(ours, x)
    assert "_Products" not in str(traced.graph)
    assert_close(traced(x), theirs(x), rtol=0, atol=1e-5)
    with torch.autograd.forward_ad.dual_level():
        assert not ways(ours, x)[1]


@pytest.mark.usefixtures("cheap")
def test_compilers_and_exporters_see_a_convolution():
    ours, theirs = pair(stride=2)
    x = torch.rand(32, 32, 20, 20)
    compiled = torch.compile(ours, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), theirs(x))
    exported = torch.export.export(ours, (x,))
    names = [str(node.target) for node in exported.graph.nodes]
    assert any("conv2d" in name for name in names)
    assert not any("bmm" in name for name in names)
    assert torch.equal(exported.module()(x), theirs(x))


@pytest.mark.parametrize("name", ["capsnet", "gamma_capsnet"])
def test_a_network_is_the_same_either_way(name):
    model = create_model(name, image=(1, 24, 25), decoder=False).double()
    x, target = torch.rand(4, 1, 24, 25, dtype=torch.float64), torch.arange(4)

    def found():
        model.zero_grad()
        scores = model(x, target).scores
        scores.square().sum().backward()
        return [scores.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]

    with mock.patch.object(large, "WORTH", 0.1):
        ours = found()
    use_backend(model, "plain")
    for our_result, other in zip(ours, found(), strict=True):
        assert_close(our_result, other, rtol=0, atol=1e-10 * max(1, float(other.abs().max())))
