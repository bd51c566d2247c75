"""What vector routings share: the activation of a capsule is the length of its pose."""

import torch
from torch import Tensor

from torchcaps.ops.checks import widen
from torchcaps.types import Capsules

__all__ = ["capsules"]


def capsules(pose: Tensor, dtype: torch.dtype | None = None) -> Capsules:
    """Vector capsules [*b, j, d] with their lengths, both in `dtype`, or that of the pose; the
    gradient of a zero length is zero. A length is taken before its pose is rounded: one too long
    for float16 would make its gradient NaN."""
    dtype = pose.dtype if dtype is None else dtype
    length = torch.linalg.vector_norm(widen(pose), dim=-1)
    return Capsules(pose.to(dtype), length.to(dtype))
