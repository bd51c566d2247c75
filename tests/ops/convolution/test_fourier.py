"""Convolution through Fourier space is the direct one: values, gradients, and what it costs."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import conv2d
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from torchcaps.ops.convolution import fourier
from torchcaps.ops.convolution.fourier import fourier_convolution, saving

CAPSNET = (torch.Size([128, 256, 20, 20]), torch.Size([256, 256, 9, 9]))


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed + len(shape))
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def with_gradients(convolution, tensors, upstream=None):
    tensors = [tensor.detach().requires_grad_() for tensor in tensors]
    y = convolution(*tensors)
    upstream = drawn(*y.shape).to(y.dtype) if upstream is None else upstream
    return [y.detach(), *torch.autograd.grad(y, tensors, upstream)]


def by_fourier(stride=(1, 1), padding=(0, 0)):
    return lambda *tensors: fourier_convolution(*tensors, stride=stride, padding=padding)


def directly(stride=(1, 1), padding=(0, 0)):
    return lambda *tensors: conv2d(*tensors, stride=stride, padding=padding)


def test_sums_worked_out_by_hand():
    x = torch.arange(9, dtype=torch.float64).view(1, 1, 3, 3)
    weight = torch.tensor([[[[1.0, 2.0], [0.0, -1.0]]]], dtype=torch.float64)
    y = fourier_convolution(x, weight, stride=(1, 1), padding=(0, 0))
    # 0 + 2·1 − 4, 1 + 2·2 − 5, 3 + 2·4 − 7, 4 + 2·5 − 8
    expected = torch.tensor([[[[-2.0, 0.0], [4.0, 6.0]]]], dtype=torch.float64)
    assert_close(y, expected, rtol=0, atol=1e-12)


sides = st.integers(1, 5)


@given(
    kernel=st.tuples(sides, sides),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    more=st.tuples(st.integers(0, 6), st.integers(0, 6)),
    counts=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
    last=st.booleans(),
)
def test_any_size_is_the_direct_convolution(kernel, stride, padding, more, counts, last):
    batch, c_in, c_out = counts
    height, width = (k + extra for k, extra in zip(kernel, more, strict=True))
    x = drawn(batch, c_in, height, width)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    tensors = [x, drawn(c_out, c_in, *kernel), drawn(c_out)]
    ours = with_gradients(by_fourier(stride, padding), tensors)
    theirs = with_gradients(directly(stride, padding), tensors)
    assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_gradients_of_gradients_are_there():
    tensors = [drawn(2, 2, 7, 6).requires_grad_(), drawn(2, 2, 3, 4).requires_grad_()]
    convolution = by_fourier((2, 1), (1, 0))
    assert torch.autograd.gradcheck(convolution, tensors)
    assert torch.autograd.gradgradcheck(convolution, tensors)


def test_only_what_is_asked_for_gets_a_gradient():
    x, weight = drawn(2, 2, 7, 6).requires_grad_(), drawn(2, 2, 3, 4)
    by_fourier()(x, weight).sum().backward()
    assert x.grad is not None
    weight.requires_grad_()
    (gradient,) = torch.autograd.grad(by_fourier()(x.detach(), weight).sum(), [weight])
    (expected,) = torch.autograd.grad(directly()(x.detach(), weight).sum(), [weight])
    assert_close(gradient, expected, rtol=0, atol=1e-10)


def test_an_empty_batch_has_an_empty_result():
    y = by_fourier()(torch.empty(0, 2, 7, 6), torch.ones(3, 2, 3, 3))
    assert y.shape == (0, 3, 5, 4)


def test_single_precision_errs_no_more_than_a_direct_convolution():
    exact = [drawn(4, 64, 20, 20).relu(), 0.01 * drawn(32, 64, 9, 9), drawn(32)]
    truth = with_gradients(directly((2, 2)), exact)
    rounded = [each.float() for each in exact]
    upstream = drawn(*truth[0].shape).float()
    for name, our_result, other, true in zip(
        ("values", "maps", "kernels", "bias"),
        with_gradients(by_fourier((2, 2)), rounded, upstream),
        with_gradients(directly((2, 2)), rounded, upstream),
        truth,
        strict=True,
    ):
        ours, theirs = (float((each - true).abs().max()) for each in (our_result, other))
        assert ours <= max(2 * theirs, 2e-7 * float(true.abs().max())), name
        assert ours <= 2e-6 * float(true.abs().max()), name


def test_bfloat16_errs_at_most_four_times_as_much_as_a_direct_convolution():
    half = [drawn(8, 64, 20, 20).relu().bfloat16(), (0.01 * drawn(32, 64, 9, 9)).bfloat16()]
    upstream = drawn(8, 32, 6, 6).bfloat16()
    truth = with_gradients(directly((2, 2)), [x.double() for x in half], upstream.double())
    for our_result, other, true in zip(
        with_gradients(by_fourier((2, 2)), half, upstream),
        with_gradients(directly((2, 2)), half, upstream),
        truth,
        strict=True,
    ):
        assert our_result.dtype == torch.bfloat16
        ours, theirs = (float((each - true).norm() / true.norm()) for each in (our_result, other))
        assert ours <= 4 * theirs


def test_autocast_leaves_the_backward_pass_alone():
    tensors = [drawn(4, 16, 12, 12).float(), drawn(8, 16, 5, 5).float()]
    x, weight = (each.requires_grad_() for each in tensors)
    y = by_fourier()(x, weight)
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.autograd.grad(y, [x, weight], torch.ones_like(y), retain_graph=True)
    expected = torch.autograd.grad(y, [x, weight], torch.ones_like(y))
    assert_close(found, expected, rtol=0, atol=0)


def test_what_is_no_number_stays_in_its_sample():
    x = drawn(3, 2, 9, 9)
    x[1, 0, 4, 4] = math.nan
    y = by_fourier()(x, drawn(4, 2, 3, 3))
    assert y[1].isnan().all()
    assert y[[0, 2]].isfinite().all()


@pytest.mark.parametrize("last", ["neither", "maps", "kernels"])
def test_the_result_lies_as_that_of_a_direct_convolution(last):
    tensors = {"maps": drawn(3, 4, 9, 8).float(), "kernels": drawn(5, 4, 3, 3).float()}
    if last in tensors:
        tensors[last] = tensors[last].contiguous(memory_format=torch.channels_last)
    ours, theirs = (way()(*tensors.values()) for way in (by_fourier, directly))
    assert ours.stride() == theirs.stride()


def test_a_counter_sees_every_product():
    x, weight = drawn(3, 4, 12, 12).requires_grad_(), drawn(5, 4, 5, 5).requires_grad_()
    products = fourier._count_products((12, 12))
    around = products * (144 * 12 + 25 * 20)  # of maps and kernels
    within, after = products * 3 * 4 * 5, products * 64 * 15
    with FlopCounterMode(display=False) as forward:
        y = by_fourier()(x, weight)
    assert forward.get_total_flops() == 2 * (around + within + after)
    with FlopCounterMode(display=False) as backward:
        y.sum().backward()
    # Maps and kernels are made again, and their gradients led back.
    assert backward.get_total_flops() == 2 * (2 * around + 2 * within + after)


def test_float16_has_room_for_the_sums_of_a_map():
    x = torch.full((1, 1, 20, 20), 300.0, dtype=torch.float16)
    weight = torch.full((1, 1, 9, 9), 2.0, dtype=torch.float16)
    # 81 · 600, but the sum over the map, 120 000, is no number of float16.
    assert (by_fourier()(x, weight) == 48_608).all()


def test_the_saving_is_that_of_the_docstring():
    # Frequencies of 10 × 10 points: 4 real, 48 pairs.
    assert fourier._count_products((10, 10)) == 148
    direct = 36 * 81 * 256 * 128 * 256
    ours = 148 * (1024 * (100 * 128 + 25 * 256) + 1024 * 128 * 256 + 36 * 128 * 256)
    assert saving(*CAPSNET, stride=(2, 2), padding=(0, 0)) == direct / ours
    assert 3.0 < direct / ours < 3.1
    assert fourier._count_products((3, 5)) == 1 + 3 * 7
    assert fourier._count_products((1, 1)) == 1


def test_nothing_is_saved_by_one_image_or_a_small_kernel():
    (_, *map_sides), weight = CAPSNET
    assert saving(torch.Size([1, *map_sides]), weight, stride=(2, 2), padding=(0, 0)) < 1
    small = torch.Size([256, 256, 1, 1])
    assert saving(CAPSNET[0], small, stride=(1, 1), padding=(0, 0)) < 1
    wide = torch.Size([128, 256, 100, 100])
    assert saving(wide, weight, stride=(2, 2), padding=(0, 0)) == 0
    larger = torch.Size([256, 256, 21, 21])
    assert saving(CAPSNET[0], larger, stride=(1, 1), padding=(0, 0)) == 0


def test_what_is_made_at_a_time_is_bounded_and_changes_nothing(monkeypatch):
    tensors = [drawn(3, 4, 12, 12), drawn(5, 4, 5, 5)]
    whole = with_gradients(by_fourier(), tensors)
    products = fourier._count_products((12, 12))
    # Of kernels there are more than of maps: five numbers a product and channel.
    monkeypatch.setattr(fourier, "PART_BYTES", products * 5 * 8 * 3 - 1)
    parts = fourier._parts(*tensors, products)
    assert [part.start for part in parts] == [0, 2]
    assert_close(with_gradients(by_fourier(), tensors), whole, rtol=0, atol=1e-12)


def test_fake_tensors_leave_nothing_behind():
    fourier._matrices.cache_clear()
    with FakeTensorMode():
        fake = by_fourier()(torch.empty(2, 3, 9, 8), torch.empty(4, 3, 5, 5))
    assert fake.shape == (2, 4, 5, 4)
    tensors = [drawn(2, 3, 9, 8), drawn(4, 3, 5, 5)]
    assert_close(by_fourier()(*tensors), directly()(*tensors), rtol=0, atol=1e-12)
