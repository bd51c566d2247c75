"""The squash of maps of capsules in a native kernel: one pass forwards, one backwards.

The formula, its paper and its guard are those of `ops.squash`, hinton's kind. Maps are float32.

Departures: no gradients of gradients. Ambiguities: none.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor

from torchcaps.ops.gradients import refuse_twice
from torchcaps.ops.native.build import available, library
from torchcaps.ops.native.dynamic import MOST_THREADS
from torchcaps.ops.squash import EPSILON

__all__ = ["fits", "squash_maps"]


def squash_maps(maps: Tensor, size: int) -> Tensor:
    """Squash maps [b, type · d, h, w] of capsules with d = `size` components, which fit."""
    if _is_by_itself(maps):
        return _run(maps, None, size)
    squashed: Tensor = _squash(maps, size)
    return squashed


def _is_by_itself(maps: Tensor) -> bool:
    """Whether nobody wants to know of the operator: the way through the dispatcher takes longer
    than a small kernel."""
    wants_gradients = maps.requires_grad and torch.is_grad_enabled()
    return not wants_gradients and type(maps) is Tensor and not torch._C._len_torch_dispatch_stack()


def fits(maps: Tensor, size: int) -> bool:
    """Whether there is a kernel for such maps."""
    if maps.device.type != "cpu" or maps.dtype != torch.float32 or not available():
        return False
    if maps.ndim != 4 or maps.shape[1] % size:
        return False
    if maps.is_contiguous() and _apart(maps) > 1:
        return True
    found = library()
    assert found is not None
    # Capsules that share a vector must fill it.
    return _is_last(maps) and found.torchcaps_lanes() % size == 0


class _Job(ctypes.Structure):
    """What a call is given: the fields of the source in their order."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("pose", "upstream", "out")),
        *((name, ctypes.c_int64) for name in ("groups", "size", "step", "threads")),
        ("epsilon", ctypes.c_double),
    )


def _is_last(maps: Tensor) -> bool:
    return maps.is_contiguous(memory_format=torch.channels_last)


def _apart(maps: Tensor) -> int:
    """How far components lie apart."""
    return maps.shape[2] * maps.shape[3] if maps.is_contiguous() else 1


def _run(maps: Tensor, upstream: Tensor | None, size: int) -> Tensor:
    out = torch.empty_like(maps)
    step = _apart(maps)
    job = _Job(
        pose=maps.data_ptr(),
        upstream=None if upstream is None else upstream.data_ptr(),
        out=out.data_ptr(),
        groups=maps.numel() // max(1, size * step),
        size=size,
        step=step,
        threads=min(torch.get_num_threads(), MOST_THREADS),
        epsilon=EPSILON,
    )
    found = library()
    assert found is not None
    if maps.numel():
        found.torchcaps_squash(ctypes.byref(job))
    return out


@torch.library.custom_op("torchcaps::native_squash", mutates_args=())
def _squash(maps: Tensor, size: int) -> Tensor:
    return _run(maps, None, size)


@torch.library.custom_op("torchcaps::native_squash_backward", mutates_args=())
def _backward(maps: Tensor, upstream: Tensor, size: int) -> Tensor:
    form = torch.contiguous_format if maps.is_contiguous() else torch.channels_last
    return _run(maps, upstream.contiguous(memory_format=form), size)


@_squash.register_fake
def _(maps: Tensor, size: int) -> Tensor:
    return torch.empty_like(maps)


@_backward.register_fake
def _(maps: Tensor, upstream: Tensor, size: int) -> Tensor:
    return torch.empty_like(maps)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    maps, ctx.size = inputs
    ctx.save_for_backward(maps)


def _differentiate(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
    (maps,) = ctx.saved_tensors
    return _backward(maps, upstream, ctx.size), None


_squash.register_autograd(_differentiate, setup_context=_keep)
refuse_twice(_backward, "the native squash", 'call torchcaps.layers.use_backend(network, "plain")')
