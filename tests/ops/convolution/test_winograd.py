"""Winograd's convolution is the direct one: exact on small whole numbers, near it on others."""

import itertools

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from torchcaps.ops.convolution import winograd as kernel
from torchcaps.ops.costs import COSTS

pytestmark = pytest.mark.usefixtures("kernels")
LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
# Images, channels in and out, height, width, padding: whole lanes, ragged ones, one of each, odd
# and even sides, tiles that are cut, more rows of tiles than are made at once.
SHAPES = [
    (2, 32, 32, 8, 8, 1),
    (3, 37, 50, 7, 5, 0),
    (1, 16, 100, 9, 6, 2),
    (2, 130, 7, 3, 3, 1),
    (1, 1, 1, 3, 3, 0),
    (2, 3, 2, 1, 1, 1),
    (40, 5, 70, 12, 11, 1),
    (1, 4, 5, 3, 40, 1),
]
SOME = SHAPES[1]


def tensors(shape, layout="contiguous", whole=False, seed=0):
    """Maps, kernels and a bias; `whole` numbers have sums that are exact in float32."""
    b, c, o, h, w, _ = shape
    generator = torch.Generator().manual_seed(seed)

    def draw(*size):
        if whole:
            return torch.randint(-4, 5, size, generator=generator).float()
        return torch.randn(size, generator=generator)

    form = LAYOUTS[layout]
    maps, kernels = draw(b, c, h, w), draw(o, c, 3, 3)
    return [
        x.requires_grad_()
        for x in (
            maps.contiguous(memory_format=form),
            kernels.contiguous(memory_format=form),
            draw(o),
        )
    ]


def ours(x, weight, bias, padding):
    return kernel.winograd_convolution(x, weight, bias, padding=padding)


def direct(x, weight, bias, padding):
    return F.conv2d(x, weight, bias, padding=padding)


def through(convolve, given, padding, upstream):
    y = convolve(*given, padding)
    return [y.detach(), *torch.autograd.grad(y, given, upstream)]


def doubled(given):
    return [x.detach().double().requires_grad_() for x in given]


def both(given, padding, upstream):
    """Ours, and what is right, of a direct convolution in double precision."""
    right = through(direct, doubled(given), padding, upstream.double())
    return through(ours, given, padding, upstream), right


def assert_near(found, right):
    """By the largest number of each."""
    for our_result, other in zip(found, right, strict=True):
        assert float((our_result - other).abs().max() / other.abs().max()) <= 1e-6


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_whole_numbers_are_exact(shape, layout):
    given = tensors(shape, layout, whole=True)
    upstream = torch.randint(-2, 3, direct(*given, shape[-1]).shape).float()
    assert_close(*both(given, shape[-1], upstream), rtol=0, atol=0, check_dtype=False)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_other_numbers_are_near(shape, layout):
    given = tensors(shape, layout)
    assert_near(*both(given, shape[-1], torch.randn(direct(*given, shape[-1]).shape)))


def test_one_tile_by_hand():
    # Sums of 3×3 of the numbers 0 to 15, four to a row.
    x, weight = torch.arange(16.0).view(1, 1, 4, 4), torch.ones(1, 1, 3, 3)
    y = kernel.winograd_convolution(x, weight, padding=0)
    assert y.flatten().tolist() == [45, 54, 81, 90]
    # A kernel of one tap moves the map.
    weight = torch.zeros(1, 1, 3, 3)
    weight[..., 2, 0] = 1
    y = kernel.winograd_convolution(x, weight, padding=0)
    assert y.flatten().tolist() == [8, 9, 12, 13]


def test_gradients_can_be_differentiated():
    x, weight, bias = tensors((2, 3, 4, 5, 6, 1), whole=True)

    def second(convolve, given):
        y = convolve(*given, 1)
        first = torch.autograd.grad((y * y).sum(), given[:2], create_graph=True)
        return torch.autograd.grad(sum((g * g).sum() for g in first), given)

    given = [x, weight, bias]
    assert_near(second(ours, given), second(direct, doubled(given)))


@pytest.mark.parametrize("layouts", list(itertools.product(LAYOUTS, repeat=2)), ids=str)
def test_results_lie_as_torch_lays_them(layouts):
    x, weight, _ = tensors(SOME, layouts[0])
    weight = weight.detach().contiguous(memory_format=LAYOUTS[layouts[1]]).requires_grad_()
    our_result, other = (f(x, weight, None, 0) for f in (ours, direct))
    assert our_result.stride() == other.stride()


def test_any_strides_are_read():
    x, weight, bias = (each.detach() for each in tensors((4, 6, 8, 7, 9, 1), whole=True))
    every = [
        (x[1:3], weight, bias),
        (x[..., ::2], weight, bias),
        (x[:, ::2], weight[:, ::2], bias),
        (x.transpose(2, 3), weight.transpose(2, 3), bias),
        (x[:1].expand(3, -1, -1, -1), weight[:1].expand(8, -1, -1, -1), bias[:1].expand(8)),
        (x.permute(0, 3, 2, 1).contiguous().permute(0, 3, 2, 1), weight, bias.flip(0)),
        # Contiguous, but for the stride of its one column.
        (x[..., :1].permute(0, 3, 2, 1).contiguous().permute(0, 3, 2, 1), weight, bias),
        (x[:, :1, :6].contiguous().permute(0, 2, 3, 1), weight, bias),
    ]
    for given in every:
        assert torch.equal(ours(*given, 1), direct(*given, 1))


def test_upstream_gradients_may_lie_anyhow():
    given = tensors(SOME, whole=True)
    upstream = torch.randint(-2, 3, (50, 3, 5, 3)).float().transpose(0, 1)
    for g in (upstream, torch.ones(()).expand(3, 50, 5, 3)):
        assert_close(*both(given, 0, g), rtol=0, atol=0, check_dtype=False)


def test_threads_change_no_bit():
    given, before = tensors(SHAPES[6]), torch.get_num_threads()
    upstream, found = torch.randn(40, 70, 12, 11), []
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            found.append(through(ours, given, 1, upstream))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(map(torch.equal, other[:3], found[0][:3]))


def test_no_images_and_no_gradients_of_kernels():
    x, weight, bias = tensors((0, 4, 5, 6, 6, 1))
    y = ours(x, weight, bias, 1)
    assert y.shape == (0, 5, 6, 6)
    of_x, of_weight, of_bias = torch.autograd.grad(y.sum(), (x, weight, bias))
    assert of_x.shape == x.shape
    assert not of_weight.any()
    assert not of_bias.any()


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_not_finite_leaves_as_not_finite_where_it_would(wrong):
    x, weight, _ = (each.detach() for each in tensors((1, 3, 4, 12, 12, 1)))
    x[0, 1, 5, 6] = wrong
    our_result, other = ours(x, weight, None, 1), direct(x, weight, None, 1)
    assert torch.equal(our_result.isfinite(), other.isfinite())


@pytest.mark.parametrize("turned", [False, True])
def test_fake_tensors_look_like_real_ones(turned):
    x, weight, bias = (each.detach() for each in tensors((2, 5, 5, 6, 7, 1), "channels_last"))
    torch.library.opcheck(kernel.convolve.forward, (x, weight, None if turned else bias, 1, turned))
    torch.library.opcheck(kernel.kernels.forward, (x, torch.randn(2, 4, 6, 7), 1))


def test_costs():
    x, weight, _ = (each.detach() for each in tensors((2, 5, 8, 7, 6, 0)))
    y = direct(x, weight, None, 0)  # 5×4: 3×2 tiles
    cost = COSTS[torch.ops.torchcaps.native_winograd](x, weight, None, 0, False)
    assert cost.flops == 2 * 16 * (2 * 3 * 2) * 5 * 8
    # The gradient of what goes in has 7×6 numbers, 4×3 tiles.
    back = COSTS[torch.ops.torchcaps.native_winograd](y, weight, None, 0, True)
    assert back.flops == 2 * 16 * (2 * 4 * 3) * 5 * 8
    kernels = COSTS[torch.ops.torchcaps.native_winograd_kernels](x, y, 0)
    assert kernels.flops == cost.flops
    for each in (cost, back, kernels):
        # 16 numbers for each of five by eight channels at least; little more is borrowed.
        assert 4 * 16 * 5 * 8 < each.workspace < 4e6


def test_large_maps_borrow_no_more(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    small, large = (torch.empty(n, 64, 56, 56, device="meta") for n in (2, 64))
    for of_kernels in (False, True):
        sizes = [
            kernel.planned(x, x, 1, of_kernels=of_kernels).workspace_size for x in (small, large)
        ]
        assert sizes[0] == sizes[1] < 4e6
