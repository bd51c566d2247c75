"""What vector routings share: the activation of a capsule is the length of its pose."""

import torch
from torch import Tensor

from torchcaps.ops.checks import widen
from torchcaps.types import Capsules

__all__ = ["along", "capsules", "weighted"]


def capsules(pose: Tensor, dtype: torch.dtype | None = None) -> Capsules:
    """Vector capsules [*b, j, d] with their lengths, both in `dtype`, or that of the pose; the
    gradient of a zero length is zero. A length is taken before its pose is rounded: one too long
    for float16 would make its gradient NaN."""
    dtype = pose.dtype if dtype is None else dtype
    length = torch.linalg.vector_norm(widen(pose), dim=-1)
    return Capsules(pose.to(dtype), length.to(dtype))


def weighted(coupling: Tensor, votes: Tensor) -> Tensor:
    """Σ_i c_ij û_ij, [*b, j, d]. A product of matrices, as einsum has it, in half the calls."""
    return (coupling.transpose(-1, -2).unsqueeze(-2) @ votes.transpose(-2, -3)).squeeze(-2)


def along(votes: Tensor, pose: Tensor) -> Tensor:
    """⟨û_ij, v_j⟩, [*b, i, j], of votes [*b, i, j, d] and poses [*b, j, d]; likewise."""
    products = pose.unsqueeze(-2) @ votes.movedim(-3, -1)  # [*b, j, 1, i]
    return products.squeeze(-2).transpose(-1, -2)
