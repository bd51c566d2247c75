"""A convolution by a kernel that oneDNN laid out once, which is kept beside the weights until
somebody writes to them: of a few images it is laid out for longer than it is multiplied.

PyTorch counts what is written to weights, but not what is written to `weight.data`. Compiled graphs
call it as an operator, for else they lay the kernel out in every call.

Departures: none. Ambiguities: none.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor


class _LaidOut(NamedTuple):
    seal: tuple[object, ...]
    weight: Tensor
    of: Tensor  # Held, so that no other weights come to lie where these lay.
    how: tuple[list[int], list[int], list[int], int]
    convolve: Any
    whose: ref[Tensor]


# Beside the weights, for copies and files of them, by their ids: a dictionary of weak references
# looks for as long as a small operator computes.
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
    # Nobody counts the changes of what was made in inference mode.
    if weight.is_inference() or not torch._C._get_mkldnn_enabled():
        return _as_ever(x, weight, bias, padding, stride, dilation, groups)
    # Number by number, for a graph gives lists where a module has tuples.
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
        forget = partial(_forget, id(weight))
        known = _LaidOut(seal, laid_out, weight.detach(), how, convolve, ref(weight, forget))
        LAID_OUT[id(weight)] = known
    y: Tensor = known.convolve(x, known.weight, bias, *known.how, "none", [], "")
    return y.contiguous(memory_format=torch.channels_last)


def _forget(weight: int, _: object) -> None:
    LAID_OUT.pop(weight, None)


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
