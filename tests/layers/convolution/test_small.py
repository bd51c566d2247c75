"""SmallConv2d is nn.Conv2d, whichever way it takes."""

from unittest import mock

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from torchcaps.layers import use_backend
from torchcaps.layers.convolution import SmallConv2d
from torchcaps.models import create_model
from torchcaps.ops import native
from torchcaps.ops.convolution import winograd

IMAGES = (24, 32, 12, 14)


@pytest.fixture(autouse=True)
def _library():
    if not native.available():
        pytest.skip("there is no C++ compiler, or TORCHCAPS_NATIVE=0")


def ways(convolution, x):
    """What comes out, and how often it went Winograd's way."""
    with mock.patch.object(
        winograd, "winograd_convolution", wraps=winograd.winograd_convolution
    ) as counted:
        y = convolution(x)
    return y, counted.call_count


def pair(c_in=32, c_out=48, kernel=3, **options):
    ours = SmallConv2d(c_in, c_out, kernel, **options)
    theirs = nn.Conv2d(c_in, c_out, kernel, **options)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_many_positions_go_winograds_way(padding, bias):
    ours, theirs = pair(padding=padding, bias=bias)
    x = torch.rand(IMAGES)
    y, count = ways(ours, x)
    assert count == 1
    assert_close(y, theirs(x), rtol=0, atol=2e-6)
    with torch.no_grad():
        assert ways(ours, x)[1] == 1


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"stride": 2}, IMAGES),
        ({"kernel": 5}, IMAGES),
        ({"groups": 2}, IMAGES),
        ({"dilation": 2}, IMAGES),
        ({"padding": 1, "padding_mode": "reflect"}, IMAGES),
        ({"padding": "same"}, IMAGES),
        ({"padding": (0, 1)}, IMAGES),
        ({"padding": 3}, IMAGES),
        ({}, IMAGES[1:]),
        ({"c_in": 31}, (24, 31, 12, 14)),
        ({"c_out": 31}, IMAGES),
        ({}, (2, 32, 12, 14)),
        ({}, (200, 32, 3, 14)),
    ],
    ids=str,
)
def test_what_does_not_pay_or_fit_goes_directly(options, shape):
    ours, theirs = pair(**options)
    x = torch.rand(shape)
    y, count = ways(ours, x)
    assert count == 0
    assert torch.equal(y, theirs(x))


def test_wrong_maps_end_in_the_words_of_torch():
    ours, theirs = pair()
    for wrong in (torch.rand(24, 31, 12, 14), torch.rand(24, 32, 2, 14), torch.ones(IMAGES).long()):
        with pytest.raises(RuntimeError) as our_result:
            ours(wrong)
        with pytest.raises(RuntimeError) as other:
            theirs(wrong)
        assert str(our_result.value) == str(other.value)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_go_directly(dtype):
    ours, theirs = (each.to(dtype) for each in pair())
    x = torch.rand(IMAGES, dtype=dtype)
    y, count = ways(ours, x)
    assert count == 0
    assert torch.equal(y, theirs(x))


def outcome(convolution, x):
    try:
        return ways(convolution, x)
    except RuntimeError as error:
        return str(error), 0


def test_weights_elsewhere_and_a_bias_of_another_dtype_are_left_to_torch():
    x = torch.rand(IMAGES)
    ours, theirs = (part.to("meta") for part in pair())
    assert outcome(ours, x)[1] == 0
    assert type(outcome(ours, x)[0]) is type(outcome(theirs, x)[0])
    ours, theirs = pair()
    for part in (ours, theirs):
        part.bias = nn.Parameter(part.bias.detach().bfloat16())
    (our_result, count), (other, _) = outcome(ours, x), outcome(theirs, x)
    assert count == 0
    assert our_result == other if isinstance(other, str) else torch.equal(our_result, other)


def test_autocast_goes_directly():
    ours, theirs = pair()
    x = torch.rand(IMAGES)
    with torch.autocast("cpu", torch.bfloat16):
        y, count = ways(ours, x)
        assert count == 0
        assert torch.equal(y, theirs(x))


def test_a_backend_for_all_turns_it_off_and_on():
    model = nn.Sequential(pair()[0])
    convolution, x = model[0], torch.rand(IMAGES)
    assert ways(convolution, x)[1] == 1
    use_backend(model, "plain")
    assert ways(convolution, x)[1] == 0
    use_backend(model, "auto")
    assert ways(convolution, x)[1] == 1


def test_without_a_compiler_it_is_direct(monkeypatch):
    ours, theirs = pair()
    monkeypatch.setenv("TORCHCAPS_NATIVE", "0")
    x = torch.rand(IMAGES)
    assert torch.equal(ours(x), theirs(x))


# torch.func scripts its own formulas.
@pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning")
def test_transforms_and_tracers_see_a_convolution():
    ours, theirs = pair()
    x = torch.rand(IMAGES)
    weights = dict(ours.named_parameters())

    def sums(weight, convolution=ours):
        return torch.func.functional_call(convolution, weights | {"weight": weight}, x).sum()

    tangent = torch.rand_like(ours.weight)
    found = torch.func.jvp(sums, (ours.weight,), (tangent,))[1]
    of_weight = torch.func.grad(lambda weight: sums(weight, theirs))(ours.weight)
    assert_close(found, (of_weight * tangent).sum(), rtol=1e-4, atol=0)
    images = torch.func.vmap(ours)(x.unflatten(0, (2, 12)))
    assert_close(images.flatten(0, 1), theirs(x), rtol=0, atol=1e-5)
    traced = torch.jit.trace(ours, x)
    assert "winograd" not in str(traced.graph)
    assert_close(traced(x), theirs(x), rtol=0, atol=1e-5)


def test_compilers_and_exporters_see_a_convolution():
    ours, theirs = pair()
    x = torch.rand(IMAGES)
    compiled = torch.compile(ours, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), theirs(x))
    exported = torch.export.export(ours, (x,))
    names = [str(node.target) for node in exported.graph.nodes]
    assert any("conv2d" in name for name in names)
    assert not any("winograd" in name for name in names)
    assert torch.equal(exported.module()(x), theirs(x))


@pytest.mark.parametrize(
    ("name", "image", "count"),
    [
        # Of 28×28 pixels, without padding: 24 after a kernel of 5, then two of 3 before a stride.
        ("efficient_capsnet", (1, 28, 28), 2),
        # Cells 1 and 2 have three each; the maps of the others are few tiles for 64 images.
        ("rem_deepcaps", (3, 32, 32), 6),
        # Three blocks of two, four of two of which one halves the map.
        ("tsai_inverted_resnet_c10", (3, 32, 32), 13),
    ],
)
def test_networks_take_it(name, image, count):
    model = create_model(name, image=image)
    taken = []
    for part in model.modules():
        if isinstance(part, SmallConv2d):
            part.register_forward_pre_hook(lambda part, x: taken.append(part.pays(x[0])))
    with torch.no_grad():
        model(torch.rand(64, *image))
    assert sum(taken) == count


@pytest.mark.parametrize("name", ["efficient_capsnet", "mitterreiter_5x16"])
def test_a_network_is_the_same_either_way(name):
    torch.manual_seed(0)
    model = create_model(name, image=(1, 40, 40))
    # Rounding can carry a number over the edge of a ReLU, and with it part of a gradient.
    for part in [part for part in model.modules() if isinstance(part, nn.Sequential)]:
        for place, each in enumerate(part):
            if isinstance(each, nn.ReLU):
                part[place] = nn.SiLU()
    x = torch.rand(8, 1, 40, 40)

    def found():
        model.zero_grad()
        scores = model(x).scores
        scores.square().sum().backward()
        return [scores.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]

    ours = found()
    use_backend(model, "plain")
    plain = found()
    model.double()
    x = x.double()
    for our_result, other, right in zip(ours, plain, found(), strict=True):
        scale = max(float(right.abs().max()), 1e-6)
        rounding = float((other - right).abs().max()) / scale
        assert float((our_result - right).abs().max()) / scale <= max(4 * rounding, 2e-6)
