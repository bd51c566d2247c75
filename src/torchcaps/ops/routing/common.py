"""What vector routings share: the activation of a capsule is the length of its pose."""

import torch
from torch import Tensor

from torchcaps.types import Capsules

__all__ = ["capsules"]


def capsules(pose: Tensor) -> Capsules:
    """Vector capsules [*b, j, d] with their lengths; the gradient of a zero length is zero."""
    return Capsules(pose, torch.linalg.vector_norm(pose, dim=-1))
