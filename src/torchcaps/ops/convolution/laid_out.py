"""A convolution by a kernel that oneDNN laid out once. It is kept until somebody writes to the
weights: for a few images, laying a kernel out takes longer than multiplying by it.

PyTorch counts writes to weights, but not writes to `weight.data`. Compiled graphs call this as an
operator, since otherwise they would lay the kernel out in every call.

Departures: none. Ambiguities: none.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor


class _LaidOut(NamedTuple):
    seal: tuple[object, ...]  # While this is the same, the layout is right.
    weight: Tensor
    of: Tensor  # Kept alive, so that no other weights get its address, which the seal holds.
    how: tuple[list[int], list[int], list[int], int]
    convolve: Any
    whose: ref[Tensor]  # Removes this entry when the weights are gone.


# By the ids of weights. An attribute of the weights would go into their copies and files; to look
# into a dictionary of weak references takes as long as a small operator.
LAID_OUT: dict[int, _LaidOut] = {}


def laid_out_convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Compute `torch.nn.functional.conv2d` of maps in float32 on a CPU, without gradients; channels
    lie next to each other in what it gives."""
    # Weights that were made in inference mode do not count the writes to them.
    if weight.is_inference() or not torch._C._get_mkldnn_enabled():
        return _as_ever(x, weight, bias, padding, stride, dilation, groups)
    # One flat tuple: a graph gives lists where a module has tuples, and the two are never equal.
    numbers = (*padding, *stride, *dilation, groups)
    seal = (weight.data_ptr(), weight._version, x.shape, numbers)
    known = LAID_OUT.get(id(weight))
    if known is None or known.seal != seal:
        if not torch.backends.mkldnn.is_available():
            return _as_ever(x, weight, bias, padding, stride, dilation, groups)
        how = ([*padding], [*stride], [*dilation], groups)
        reorder: Any = torch._C._nn.mkldnn_reorder_conv2d_weight
        laid_out = reorder(weight.detach().to_mkldnn(), *how, list(x.shape))
        convolve = torch.ops.mkldnn._convolution_pointwise.default
        forget = partial(LAID_OUT.pop, id(weight))  # Its default is the reference.
        known = _LaidOut(seal, laid_out, weight.detach(), how, convolve, ref(weight, forget))
        LAID_OUT[id(weight)] = known
    y: Tensor = known.convolve(x, known.weight, bias, *known.how, "none", [], "")
    return y.contiguous(memory_format=torch.channels_last)


def _as_ever(x: Tensor, weight: Tensor, bias: Tensor | None, *how: Any) -> Tensor:
    padding, stride, dilation, groups = how
    y = torch.nn.functional.conv2d(x, weight, bias, stride, padding, dilation, groups)
    return y.contiguous(memory_format=torch.channels_last)


NAME = "torchcaps::laid_out_convolution"
torch.library.define(
    NAME,
    "(Tensor x, Tensor weight, Tensor? bias, int[] padding, int[] stride, int[] dilation, "
    "int groups) -> Tensor",
)
# Not by `custom_op`, whose own Python takes as long as a small convolution.
torch.library.impl(NAME, "cpu", laid_out_convolution)
torch.library.register_fake(NAME, _as_ever)
in_graphs: Any = torch.ops.torchcaps.laid_out_convolution.default
