"""What vector routings share: the activation of a capsule is the length of its pose."""

import torch
from torch import Tensor

from torchcaps.ops.checks import may_look, widen
from torchcaps.types import Capsules


def capsules(pose: Tensor, dtype: torch.dtype | None = None) -> Capsules:
    """Make vector capsules [*b, j, d] with their lengths, both in `dtype`, or that of the pose; the
    gradient of a zero length is zero. A length is taken before its pose is rounded: one too long
    for float16 would make its gradient NaN."""
    dtype = pose.dtype if dtype is None else dtype
    return Capsules(pose.to(dtype), lengths(widen(pose)).to(dtype))


def lengths(pose: Tensor) -> Tensor:
    """Give ‖pose‖ over the last axis. Where it is zero, so is every derivative; torch's own has NaN
    for the second one."""
    norm: Tensor = torch.linalg.vector_norm(pose, dim=-1)
    # A trace of torch.jit is the same with gradients and without; mypy misses the name that it has.
    if not torch.is_grad_enabled() or torch.jit.is_tracing():  # type: ignore[attr-defined]
        return norm
    if may_look(norm) and bool(norm.all()):
        return norm
    zero = norm.detach() == 0
    norm = torch.linalg.vector_norm(pose.masked_fill(zero.unsqueeze(-1), 1), dim=-1)
    return norm.masked_fill(zero, 0)


def over_parents(logits: Tensor) -> Tensor:
    """Give the softmax of logits [*b, i, j] over the parents. On a CPU it is fast along an axis
    that is not the last one, where few parents do not fill a vector."""
    return logits.transpose(-1, -2).softmax(-2).transpose(-1, -2)


def biased(s: Tensor, bias: Tensor | None, odd: bool) -> Tensor:
    """Add the bias to s, or the one of bias and −bias that lies on its side."""
    if bias is None:
        return s
    return s + ((s * bias).sum(-1, keepdim=True).sign() * bias if odd else bias)


def weighted(coupling: Tensor, votes: Tensor) -> Tensor:
    """Give Σ_i c_ij û_ij, [*b, j, d]. A product of matrices, as einsum has it, in half the
    calls."""
    return (coupling.transpose(-1, -2).unsqueeze(-2) @ votes.transpose(-2, -3)).squeeze(-2)


def along(votes: Tensor, pose: Tensor) -> Tensor:
    """Give ⟨û_ij, v_j⟩, [*b, i, j], of votes [*b, i, j, d] and poses [*b, j, d]; likewise."""
    products = pose.unsqueeze(-2) @ votes.movedim(-3, -1)  # [*b, j, 1, i]
    return products.squeeze(-2).transpose(-1, -2)
