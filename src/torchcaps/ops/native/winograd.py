"""Convolution with 3×3 kernels and stride 1 by Winograd's minimal filtering, in a native kernel.

Four outputs take 16 products instead of 36; the source, winograd.cpp, has the equations. Maps are
float32, with channels or columns next to each other; the result is laid out as
`torch.nn.functional.conv2d` would lay it out. It can be differentiated any number of times:
gradients are convolutions and their kernels' gradients again.

Departures:
1. Rounding errors are up to three times those of a direct convolution.
2. Where a direct convolution is infinite this may be NaN; finite it is at the same positions.
Ambiguities: none.
"""

import ctypes
import math
from typing import Any

import torch
from torch import Tensor

from torchcaps.ops.native.build import available, library
from torchcaps.ops.native.dynamic import MOST_THREADS

__all__ = ["available", "pays", "planned", "winograd_convolution"]

# Where transformed maps and kernels cost less than the products that are saved.
FEWEST_CHANNELS, FEWEST_TILES = 32, 512


def winograd_convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, padding: int
) -> Tensor:
    """`torch.nn.functional.conv2d` of float32 maps [b, c, h, w] and kernels [o, c, 3, 3], with a
    padding of 0, 1 or 2 on every side."""
    y: Tensor = _convolve(x, weight, bias, padding, False)
    return y


def pays(x: torch.Size, weight: torch.Size, padding: int) -> bool:
    """Whether it takes less time than a direct convolution of maps and kernels of such shapes."""
    if min(weight[:2]) < FEWEST_CHANNELS or padding not in (0, 1, 2):
        return False
    height, width = (side + 2 * padding - 2 for side in x[2:])
    tiles = x[0] * math.ceil(height / 2) * math.ceil(width / 2)
    return min(height, width) >= 2 and tiles >= FEWEST_TILES


class _Maps(ctypes.Structure):
    _fields_ = (
        ("at", ctypes.c_void_p),
        *(
            (name, ctypes.c_int64)
            for name in ("channels", "height", "width", "image", "channel", "row", "column")
        ),
    )


class _Job(ctypes.Structure):
    """What a call is given: the fields of the source in their order."""

    _fields_ = (
        ("x", _Maps),
        ("y", _Maps),
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        *(
            (name, ctypes.c_int64)
            for name in ("of_output", "of_input", "of_tap", "batch", "padding", "threads", "turned")
        ),
        ("workspace", ctypes.c_void_p),
        ("workspace_size", ctypes.c_int64),
    )


def _sizes(maps: Tensor) -> _Maps:
    image, channel, row, column = maps.stride()
    return _Maps(None, *maps.shape[1:], image, channel, row, column)


def planned(x: Tensor, y: Tensor, padding: int, *, of_kernels: bool) -> _Job:
    """A call without its addresses, which knows how many floats it will borrow."""
    rows = len(y) * math.ceil(y.shape[2] / 2)
    job = _Job(
        x=_sizes(x),
        y=_sizes(y),
        batch=len(x),
        padding=padding,
        threads=max(1, min(torch.get_num_threads(), rows, MOST_THREADS)),
    )
    found = library()
    assert found is not None
    if not y.numel():
        return job
    found.torchcaps_winograd_plan(ctypes.byref(job), ctypes.c_int64(of_kernels))
    return job


def _run(
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    padding: int,
    *,
    turned: bool = False,
    of_kernels: bool = False,
) -> None:
    """Fill y, or the kernels."""
    job = planned(x, y, padding, of_kernels=of_kernels)
    inputs, outputs = (0, 1) if turned else (1, 0)
    job.x.at, job.y.at, job.weight = x.data_ptr(), y.data_ptr(), weight.data_ptr()
    job.bias = None if bias is None else bias.data_ptr()
    job.of_output, job.of_input = weight.stride(outputs), weight.stride(inputs)
    job.of_tap, job.turned = weight.stride(3), turned
    workspace = torch.empty(job.workspace_size, dtype=torch.float32)
    job.workspace = workspace.data_ptr()
    found = library()
    assert found is not None
    found.torchcaps_winograd(ctypes.byref(job), ctypes.c_int64(of_kernels))


def _convolve_kernel(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: int, turned: bool
) -> Tensor:
    """The convolution or, turned, the gradient of what goes into one with such a padding."""
    y: Tensor = _convolve_shapes(x, weight, bias, padding, turned)
    if y.numel():
        bias = None if bias is None else bias.contiguous()
        around = 2 - padding if turned else padding
        _run(_laid_out(x), y, _in_a_row(weight), bias, around, turned=turned)
    return y


def _kernels_kernel(x: Tensor, of_y: Tensor, padding: int) -> Tensor:
    """The gradient of the kernels, of what goes in and the gradient of what comes out."""
    weight: Tensor = _kernels_shapes(x, of_y, padding)
    if x.numel() and of_y.numel():
        _run(_laid_out(x), _laid_out(of_y), weight, None, padding, of_kernels=True)
    else:
        weight.zero_()
    return weight


_convolve = torch.library.custom_op("torchcaps::native_winograd", _convolve_kernel, mutates_args=())
_kernels = torch.library.custom_op(
    "torchcaps::native_winograd_kernels", _kernels_kernel, mutates_args=()
)


@_convolve.register_fake
def _convolve_shapes(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: int, turned: bool
) -> Tensor:
    grows = 2 - 2 * padding if turned else 2 * padding - 2
    shape = (len(x), weight.shape[1 if turned else 0], x.shape[2] + grows, x.shape[3] + grows)
    last = any(_is_channels_last(each) for each in (x, weight))
    form = torch.channels_last if last else torch.contiguous_format
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=form)


@_kernels.register_fake
def _kernels_shapes(x: Tensor, of_y: Tensor, padding: int) -> Tensor:
    return x.new_empty(of_y.shape[1], x.shape[1], 3, 3)


def _is_channels_last(x: Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def _laid_out(maps: Tensor) -> Tensor:
    """With channels or columns next to each other."""
    if 1 in (maps.stride(1), maps.stride(3)):
        return maps
    # Not contiguous(), which may leave the stride of an axis of one as it is.
    return maps.clone(memory_format=torch.contiguous_format)


def _in_a_row(weight: Tensor) -> Tensor:
    """With one step from tap to tap."""
    return weight if weight.stride(2) == 3 * weight.stride(3) else weight.contiguous()


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, _, *ctx.how = inputs
    ctx.save_for_backward(x, weight)


def _gradients(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, ...]:
    (x, weight), (padding, turned) = ctx.saved_tensors, ctx.how
    of_x, of_weight, of_bias = ctx.needs_input_grad[:3]
    return (
        _convolve(of_y, weight, None, padding, not turned) if of_x else None,
        (_kernels(of_y, x, padding) if turned else _kernels(x, of_y, padding))
        if of_weight
        else None,
        of_y.sum((0, 2, 3)) if of_bias else None,
        None,
        None,
    )


_convolve.register_autograd(_gradients, setup_context=_keep_inputs)


def _keep_both(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, of_y, ctx.padding = inputs
    ctx.save_for_backward(x, of_y)


def _gradients_of_kernels(ctx: Any, of_weight: Tensor) -> tuple[Tensor | None, ...]:
    x, of_y = ctx.saved_tensors
    return (
        _convolve(of_y, of_weight, None, ctx.padding, True) if ctx.needs_input_grad[0] else None,
        _convolve(x, of_weight, None, ctx.padding, False) if ctx.needs_input_grad[1] else None,
        None,
    )


_kernels.register_autograd(_gradients_of_kernels, setup_context=_keep_both)
