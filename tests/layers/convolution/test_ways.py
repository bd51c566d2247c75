"""LargeConv2d and SmallConv2d are nn.Conv2d, whichever way they take."""

from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from tables import beside
from torchcaps.layers import convolution, use_backend
from torchcaps.layers.convolution import LargeConv2d, SmallConv2d
from torchcaps.models import create_model
from torchcaps.ops import native
from torchcaps.ops.convolution import winograd


class Kind(NamedTuple):
    """A convolution, images that it takes the other way, and where this way goes through."""

    make: Any
    sizes: tuple[int, int, int]
    images: tuple[int, int, int, int]
    module: Any
    way: str
    # What a traced or exported graph has none of.
    inside: tuple[str, str]


KINDS = {
    "large": Kind(
        LargeConv2d,
        (32, 24, 9),
        (32, 32, 20, 20),
        convolution,
        "fourier_convolution",
        ("_Products", "bmm"),
    ),
    "small": Kind(
        SmallConv2d,
        (32, 48, 3),
        (24, 32, 12, 14),
        winograd,
        "winograd_convolution",
        ("winograd", "winograd"),
    ),
}
WAYS = beside(__file__, "ways.toml")
BOTH = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@pytest.fixture(autouse=True)
def _taken(request, monkeypatch):
    """Small convolutions go the way of large ones, and kernels are there."""
    if "kind" in request.fixturenames:
        monkeypatch.setattr(convolution, "WORTH", 0.5)
        if request.getfixturevalue("kind").make is SmallConv2d and not native.available():
            pytest.skip("there is no C++ compiler, or TORCHCAPS_NATIVE=0")


def cases(part):
    return pytest.mark.parametrize(
        ("kind", "case"),
        [
            pytest.param(each, case, id=f"{name}-{case}")
            for name, each in KINDS.items()
            for case in WAYS[name][part]
        ],
    )


def ways(kind, convolution, x):
    """What comes out, and how often it went the other way."""
    function = getattr(kind.module, kind.way)
    with mock.patch.object(kind.module, kind.way, wraps=function) as counted:
        y = convolution(x)
    return y, counted.call_count


def pair(kind, sizes=None, **options):
    options = {name: tuple(x) if isinstance(x, list) else x for name, x in options.items()}
    ours, theirs = (each(*(sizes or kind.sizes), **options) for each in (kind.make, nn.Conv2d))
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@pytest.mark.parametrize("bias", [True, False])
@cases("goes")
def test_many_images_go_the_other_way(kind, case, bias):
    # The kernel of small ones knows float32 alone.
    dtype, error = (torch.float32, 2e-6) if kind.make is SmallConv2d else (torch.float64, 1e-10)
    ours, theirs = (each.to(dtype) for each in pair(kind, **case, bias=bias))
    x = torch.rand(kind.images, dtype=dtype)
    y, count = ways(kind, ours, x)
    assert count == 1
    assert_close(y, theirs(x), rtol=0, atol=error)
    if kind.make is SmallConv2d:
        with torch.no_grad():
            assert ways(kind, ours, x)[1] == 1


@cases("stays")
def test_what_does_not_pay_or_fit_goes_directly(kind, case):
    ours, theirs = pair(kind, **case.get("options", {}))
    x = torch.rand(case.get("images", kind.images))
    y, count = ways(kind, ours, x)
    assert count == 0
    assert torch.equal(y, theirs(x))


@BOTH
def test_wrong_maps_end_in_the_words_of_torch(kind):
    ours, theirs = pair(kind)
    batch, channels, height, width = kind.images
    for shape in [(batch, channels - 1, height, width), (batch, channels, 2, width)]:
        for x in (torch.rand(shape), torch.ones(kind.images).long()):
            said = []
            for each in (ours, theirs):
                with pytest.raises(RuntimeError) as error:
                    each(x)
                said.append(str(error.value))
            assert said[0] == said[1]


DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.uint8]


def outcome(kind, convolution, x):
    try:
        y, count = ways(kind, convolution, x)
    except RuntimeError as error:
        return str(error), 0
    return y.dtype, count


@pytest.mark.parametrize("is_cast", [False, True])
@pytest.mark.parametrize("of_weight", DTYPES[:3])
@pytest.mark.parametrize("of_maps", DTYPES)
@BOTH
def test_dtypes_are_those_of_a_direct_convolution(kind, of_maps, of_weight, is_cast):
    ours, theirs = (each.to(of_weight) for each in pair(kind))
    x = torch.ones(kind.images).to(of_maps)
    with torch.autocast("cpu", torch.bfloat16, enabled=is_cast):
        (found, count), (expected, _) = (outcome(kind, each, x) for each in (ours, theirs))
    assert found == expected
    if kind.make is SmallConv2d:
        assert count == (of_maps == of_weight == torch.float32 and not is_cast)


def test_a_large_one_under_autocast_gives_near_numbers(monkeypatch):
    monkeypatch.setattr(convolution, "WORTH", 0.5)
    ours, theirs = pair(KINDS["large"], stride=2)
    x = torch.rand(KINDS["large"].images)
    with torch.autocast("cpu", torch.bfloat16):
        y, count = ways(KINDS["large"], ours, x)
    assert count == 1
    expected = theirs(x)
    assert_close(y.float(), expected, rtol=0, atol=0.02 * float(expected.detach().abs().max()))
    y.sum().backward()
    assert ours.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("kind", [KINDS["small"]], ids=["small"])
def test_weights_elsewhere_and_a_bias_of_another_dtype_are_left_to_torch(kind):
    x = torch.rand(kind.images)
    ours, theirs = (part.to("meta") for part in pair(kind))
    assert outcome(kind, ours, x)[1] == 0
    assert type(outcome(kind, ours, x)[0]) is type(outcome(kind, theirs, x)[0])
    ours, theirs = pair(kind)
    for part in (ours, theirs):
        part.bias = nn.Parameter(part.bias.detach().bfloat16())
    assert outcome(kind, ours, x) == (outcome(kind, theirs, x)[0], 0)


@BOTH
def test_a_backend_for_all_turns_it_off_and_on(kind):
    model, x = nn.Sequential(pair(kind)[0]), torch.rand(kind.images)
    for backend, count in (("auto", 1), ("plain", 0), ("auto", 1)):
        use_backend(model, backend)
        assert ways(kind, model[0], x)[1] == count


def test_without_a_compiler_it_is_direct(monkeypatch):
    monkeypatch.setenv("TORCHCAPS_NATIVE", "0")
    ours, theirs = pair(KINDS["small"])
    x = torch.rand(KINDS["small"].images)
    assert torch.equal(ours(x), theirs(x))


# torch.func scripts its own formulas.
@pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning")
@BOTH
def test_transforms_tracers_compilers_and_exporters_see_a_convolution(kind):
    ours, theirs = pair(kind)
    x = torch.rand(kind.images)
    weights = dict(ours.named_parameters())

    def sums(weight, convolution=ours):
        return torch.func.functional_call(convolution, weights | {"weight": weight}, x).sum()

    tangent = torch.rand_like(ours.weight)
    found = torch.func.jvp(sums, (ours.weight,), (tangent,))[1]
    of_weight = torch.func.grad(lambda weight: sums(weight, theirs))(ours.weight)
    assert_close(found, (of_weight * tangent).sum(), rtol=1e-4, atol=0)
    images = torch.func.vmap(ours)(x.unflatten(0, (2, -1)))
    assert_close(images.flatten(0, 1), theirs(x), rtol=0, atol=1e-5)
    traced = torch.jit.trace(ours, x)
    of_traced, of_exported = kind.inside
    assert of_traced not in str(traced.graph)
    assert_close(traced(x), theirs(x), rtol=0, atol=1e-5)
    with torch.autograd.forward_ad.dual_level():
        assert not ways(kind, ours, x)[1]
    compiled = torch.compile(ours, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), theirs(x))
    exported = torch.export.export(ours, (x,))
    names = [str(node.target) for node in exported.graph.nodes]
    assert any("conv2d" in name for name in names)
    assert not any(of_exported in name for name in names)
    assert torch.equal(exported.module()(x), theirs(x))


def test_capsnet_takes_the_other_way_from_a_batch_of_46_in_training():
    convolution = create_model("capsnet").primary.projection
    assert isinstance(convolution, LargeConv2d)
    assert not convolution.pays(torch.empty(45, 256, 20, 20))
    assert convolution.pays(torch.empty(46, 256, 20, 20))
    with torch.no_grad():
        assert not convolution.pays(torch.empty(46, 256, 20, 20))
    convolution.requires_grad_(False)
    assert not convolution.pays(torch.empty(46, 256, 20, 20))


@pytest.mark.parametrize("kind", [KINDS["small"]], ids=["small"])
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
def test_networks_take_it(kind, name, image, count):
    model = create_model(name, image=image)
    taken = []
    for part in model.modules():
        if isinstance(part, SmallConv2d):
            part.register_forward_pre_hook(lambda part, x: taken.append(part.pays(x[0])))
    with torch.no_grad():
        model(torch.rand(64, *image))
    assert sum(taken) == count


def scores_and_gradients(model, x):
    model.zero_grad()
    scores = model(x).scores
    scores.square().sum().backward()
    return [scores.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("capsnet", {"image": (1, 24, 25), "decoder": False, "width": 32, "types": 4}),
        ("gamma_capsnet", {"image": (1, 17, 17), "decoder": False}),
    ],
)
def test_a_network_of_large_ones_is_the_same_either_way(name, options, monkeypatch):
    monkeypatch.setattr(convolution, "WORTH", 0.1)
    model = create_model(name, **options).double()
    x = torch.rand(2, *model.image, dtype=torch.float64)
    ours = scores_and_gradients(model, x)
    use_backend(model, "plain")
    for our_result, other in zip(ours, scores_and_gradients(model, x), strict=True):
        assert_close(our_result, other, rtol=0, atol=1e-10 * max(1, float(other.abs().max())))


@pytest.mark.parametrize("kind", [KINDS["small"]], ids=["small"])
@pytest.mark.parametrize("name", ["efficient_capsnet", "mitterreiter_5x16"])
def test_a_network_of_small_ones_is_the_same_either_way(kind, name):
    torch.manual_seed(0)
    model = create_model(name, image=(1, 40, 40))
    # Rounding can carry a number over the edge of a ReLU, and with it part of a gradient.
    for part in [part for part in model.modules() if isinstance(part, nn.Sequential)]:
        for place, each in enumerate(part):
            if isinstance(each, nn.ReLU):
                part[place] = nn.SiLU()
    x = torch.rand(8, 1, 40, 40)
    ours = scores_and_gradients(model, x)
    use_backend(model, "plain")
    plain = scores_and_gradients(model, x)
    exact = scores_and_gradients(model.double(), x.double())
    for our_result, other, right in zip(ours, plain, exact, strict=True):
        scale = max(float(right.abs().max()), 1e-6)
        rounding = float((other - right).abs().max()) / scale
        assert float((our_result - right).abs().max()) / scale <= max(4 * rounding, 2e-6)
