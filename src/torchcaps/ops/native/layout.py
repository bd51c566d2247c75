"""How weights and tensors lie for native kernels, and their limits."""

import torch
from torch import Tensor

# As in the source.
MOST_THREADS, MOST_ITERATIONS = 256, 32


def lay_out(weight: Tensor, sharing: str, kind: str) -> Tensor:
    """Lay out weights as [type, parent, column, inner]."""
    weight = weight.unsqueeze(0) if sharing == "all" else weight
    return (weight.transpose(-1, -2) if kind == "matrix" else weight).contiguous()


def lay_back(laid: Tensor | None, kind: str) -> Tensor | None:
    """Lay back their gradient as they lay; the types of one that all share are still an axis."""
    return laid.transpose(-1, -2).contiguous() if laid is not None and kind == "matrix" else laid


def contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def is_plain(tensor: Tensor) -> bool:
    """Say whether a kernel can read it where it lies."""
    return tensor.is_contiguous() and tensor.dtype == torch.float32 and tensor.is_cpu
