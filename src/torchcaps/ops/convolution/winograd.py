"""Convolution with 3×3 kernels and stride 1 by Winograd's minimal filtering, in a native kernel.

Four outputs take 16 products instead of 36; the source, ops/native/winograd.cpp, has the equations.
Maps are float32, with channels or columns next to each other; the result is laid out as
`torch.nn.functional.conv2d` would lay it out. It can be differentiated any number of times:
gradients are convolutions and their kernels' gradients again.

Departures:
1. Rounding errors are up to three times those of a direct convolution.
2. Where a direct convolution is infinite this may be NaN; finite it is at the same positions.
Ambiguities: none.
"""

import ctypes
import math
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.ops.native import build
from torchcaps.ops.native.layout import MOST_THREADS, fields
from torchcaps.ops.operators import Asked, Gradients, Operator

# Where transformed maps and kernels cost less than the products that are saved.
FEWEST_CHANNELS, FEWEST_TILES = 32, 512


def winograd_convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, padding: int
) -> Tensor:
    """Compute `torch.nn.functional.conv2d` of float32 maps [b, c, h, w] and kernels [o, c, 3, 3],
    with a padding of 0, 1 or 2 on every side."""
    return convolve(Convolution(x, weight, bias, padding, False))


def pays(x: torch.Size, weight: torch.Size, padding: int) -> bool:
    """Say whether it takes less time than a direct convolution of maps and kernels of such
    shapes."""
    if min(weight[:2]) < FEWEST_CHANNELS or padding not in (0, 1, 2):
        return False
    height, width = (side + 2 * padding - 2 for side in x[2:])
    tiles = x[0] * math.ceil(height / 2) * math.ceil(width / 2)
    return min(height, width) >= 2 and tiles >= FEWEST_TILES


class _Maps(ctypes.Structure):
    _fields_ = (
        ("at", ctypes.c_void_p),
        *fields("channels height width image channel row column"),
    )


class _Job(ctypes.Structure):
    """What a call is given: the fields of the source in their order."""

    _fields_ = (
        ("x", _Maps),
        ("y", _Maps),
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        *fields("of_output of_input of_tap batch padding threads turned", "workspace"),
        ("workspace_size", ctypes.c_int64),
    )


def _sizes(maps: Tensor) -> _Maps:
    image, channel, row, column = maps.stride()
    return _Maps(None, *maps.shape[1:], image, channel, row, column)


def planned(x: Tensor, y: Tensor, padding: int, *, of_kernels: bool) -> _Job:
    """Give a call without its addresses, which knows how many floats it will borrow."""
    job = _job(x, y, padding)
    if y.numel():
        build.planned("winograd", job, ctypes.c_int64(of_kernels))
    return job


def _job(x: Tensor, y: Tensor, padding: int) -> _Job:
    rows = len(y) * math.ceil(y.shape[2] / 2)
    return _Job(
        x=_sizes(x),
        y=_sizes(y),
        batch=len(x),
        padding=padding,
        threads=max(1, min(torch.get_num_threads(), rows, MOST_THREADS)),
    )


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
    job = _job(x, y, padding)
    inputs, outputs = (0, 1) if turned else (1, 0)
    job.x.at, job.y.at, job.weight = x.data_ptr(), y.data_ptr(), weight.data_ptr()
    job.bias = None if bias is None else bias.data_ptr()
    job.of_output, job.of_input = weight.stride(outputs), weight.stride(inputs)
    job.of_tap, job.turned = weight.stride(3), turned
    build.call("winograd", job, ctypes.c_int64(of_kernels))


class Convolution(NamedTuple):
    """A convolution or, turned, the gradient of what goes into one with such a padding."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    padding: int
    turned: bool


class Kernels(NamedTuple):
    """What the gradient of the kernels is made of: what goes in, the gradient of what comes out."""

    x: Tensor
    of_y: Tensor
    padding: int


def _convolved(given: Convolution) -> Tensor:
    x, weight, bias, padding, turned = given
    y = convolved_shapes(given)
    if y.numel():
        bias = None if bias is None else bias.contiguous()
        around = 2 - padding if turned else padding
        _run(_laid_out(x), y, _in_a_row(weight), bias, around, turned=turned)
    return y


def convolved_shapes(given: Convolution) -> Tensor:
    x, weight, _, padding, turned = given
    grows = 2 - 2 * padding if turned else 2 * padding - 2
    shape = (len(x), weight.shape[1 if turned else 0], x.shape[2] + grows, x.shape[3] + grows)
    last = any(
        each.is_contiguous(memory_format=torch.channels_last) and not each.is_contiguous()
        for each in (x, weight)
    )
    form = torch.channels_last if last else torch.contiguous_format
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=form)


def _gradients(asked: Asked[Convolution]) -> Gradients:
    (x, weight, _, padding, turned), (of_y,) = asked.given, asked.gradients
    if of_y is None:
        return [None, None, None]
    of_x, of_weight, of_bias = asked.needs
    pair = (of_y, x) if turned else (x, of_y)
    return [
        convolve(Convolution(of_y, weight, None, padding, not turned)) if of_x else None,
        kernels(Kernels(*pair, padding)) if of_weight else None,
        of_y.sum((0, 2, 3)) if of_bias else None,
    ]


def _of_kernels(given: Kernels) -> Tensor:
    x, of_y, padding = given
    weight = _kernels_shapes(given)
    if x.numel() and of_y.numel():
        _run(_laid_out(x), _laid_out(of_y), weight, None, padding, of_kernels=True)
    else:
        weight.zero_()
    return weight


def _kernels_shapes(given: Kernels) -> Tensor:
    return given.x.new_empty(given.of_y.shape[1], given.x.shape[1], 3, 3)


def _gradients_of_kernels(asked: Asked[Kernels]) -> Gradients:
    (x, of_y, padding), (of_weight,) = asked.given, asked.gradients
    if of_weight is None:
        return [None, None]
    return [
        convolve(Convolution(of_y, of_weight, None, padding, True)) if asked.needs[0] else None,
        convolve(Convolution(x, of_weight, None, padding, False)) if asked.needs[1] else None,
    ]


def _laid_out(maps: Tensor) -> Tensor:
    """Give maps with channels or columns next to each other."""
    if 1 in (maps.stride(1), maps.stride(3)):
        return maps
    # Not contiguous(), which may leave the stride of an axis of one as it is.
    return maps.clone(memory_format=torch.contiguous_format)


def _in_a_row(weight: Tensor) -> Tensor:
    """Give kernels with one step from tap to tap."""
    return weight if weight.stride(2) == 3 * weight.stride(3) else weight.contiguous()


# The gradients of either are convolutions and kernels again, so both can be differentiated any
# number of times.
convolve: Operator[Convolution, Tensor] = Operator(
    "torchcaps::native_winograd",
    forward=_convolved,
    shapes=convolved_shapes,
    backward=_gradients,
    device_types="cpu",
)
kernels: Operator[Kernels, Tensor] = Operator(
    "torchcaps::native_winograd_kernels",
    forward=_of_kernels,
    shapes=_kernels_shapes,
    backward=_gradients_of_kernels,
    device_types="cpu",
)
