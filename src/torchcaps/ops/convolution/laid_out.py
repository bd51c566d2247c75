"""A convolution by a large kernel that oneDNN laid out once, which is kept beside the weights until
somebody writes to them: of a few images it is laid out for longer than it is multiplied.

PyTorch counts what is written to weights, but not what is written to `weight.data`. Compiled graphs
call it as an operator, for else they lay the kernel out in every call.

Departures: none. Ambiguities: none.
"""

from collections.abc import MutableMapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary


class _LaidOut(NamedTuple):
    seal: tuple[object, ...]
    weight: Tensor
    of: Tensor  # Held, so that no other weights come to lie where these lay.


# Beside the weights, for copies and files of them.
LAID_OUT: MutableMapping[Tensor, _LaidOut] = WeakTensorKeyDictionary()


def laid_out_convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    padding: list[int],
    stride: list[int],
    dilation: list[int],
    groups: int,
) -> Tensor:
    """Compute `torch.nn.functional.conv2d` of maps in float32 on a CPU, without gradients; channels
    lie next to each other in what it gives."""
    how = (padding, stride, dilation, groups)
    one_dnn: Any = torch.backends.mkldnn
    # Nobody counts the changes of what was made in inference mode.
    if weight.is_inference() or not (one_dnn.enabled and one_dnn.is_available()):
        return cast(Tensor, _as_ever(x, weight, bias, *how))
    seal = (weight.data_ptr(), weight._version, x.shape, how)
    known = LAID_OUT.get(weight)
    if known is None or known.seal != seal:
        reorder: Any = torch._C._nn.mkldnn_reorder_conv2d_weight
        laid_out = reorder(weight.detach().to_mkldnn(), *how, list(x.shape))
        known = LAID_OUT[weight] = _LaidOut(seal, laid_out, weight.detach())
    convolve = torch.ops.mkldnn._convolution_pointwise
    y = cast(Tensor, convolve(x, known.weight, bias, *how, "none", [], ""))
    return y.contiguous(memory_format=torch.channels_last)


in_graphs = torch.library.custom_op(
    "torchcaps::laid_out_convolution", laid_out_convolution, mutates_args=()
)


@in_graphs.register_fake
def _as_ever(x: Tensor, weight: Tensor, bias: Tensor | None, *how: Any) -> Tensor:
    padding, stride, dilation, groups = how
    y = torch.nn.functional.conv2d(x, weight, bias, stride, padding, dilation, groups)
    return y.contiguous(memory_format=torch.channels_last)
