"""Dynamic routing alone [sabour2017] Procedure 1: every vote is made, then a loop goes over them.

The reader holds the votes constant in all but the last iteration, or lets gradients through all.
"""

import torch
from torch import Tensor, nn


class DynamicOp(nn.Module):
    """Child poses [b, i, d] and matrices [i, j, o, d] as parameters, so that both get gradients."""

    def __init__(
        self,
        *,
        batch: int,
        n_in: int,
        n_out: int,
        d_in: int = 8,
        d_out: int = 16,
        iterations: int = 3,
        detach: bool = False,
    ):
        super().__init__()
        self.iterations, self.detach = iterations, detach
        self.poses = nn.Parameter(torch.randn(batch, n_in, d_in) / d_in**0.5)
        self.weight = nn.Parameter(torch.randn(n_in, n_out, d_out, d_in) * 0.1)

    def forward(self) -> Tensor:
        votes = torch.einsum("bid,ijod->bijo", self.poses, self.weight)
        return dynamic_routing(votes, self.iterations, self.detach)


def dynamic_routing(votes: Tensor, iterations: int, detach: bool) -> Tensor:
    """Parents [b, j, o] of votes [b, i, j, o]."""
    b = votes.new_zeros(votes.shape[:-1])
    for t in range(iterations):
        last = t == iterations - 1
        seen = votes.detach() if detach and not last else votes
        c = b.softmax(dim=-1)
        v = squash(torch.einsum("bij,bijo->bjo", c, seen))
        if not last:
            b = b + torch.einsum("bijo,bjo->bij", seen, v)
    return v


def squash(s: Tensor) -> Tensor:
    square = s.pow(2).sum(dim=-1, keepdim=True)
    return square / (1 + square) * s / torch.sqrt(square + 1e-8)
