"""Self-routing as a module."""

from typing import final

import torch
from torch import Tensor, nn

from torchcaps.layers.routing.base import Routing, named
from torchcaps.ops.routing import self_routing
from torchcaps.types import Couple, Keep, Routed


@named("self_routing")
@final
class SelfRouting(Routing):
    """`ops.self_routing`, one pass, with the weights and the bias by which children choose: zero at
    first, so that every child begins with equal shares.

    >>> DenseCapsules(n_in=8, d_in=4, n_out=3, d_out=6, routing=SelfRouting())
    """

    weight: nn.Parameter
    bias: nn.Parameter

    def __init__(self) -> None:
        super().__init__()

    def create_parameters(self, *, n_in: int, n_out: int, d_out: int, d_in: int = 0) -> None:
        self.weight = nn.Parameter(torch.zeros(n_in, n_out, d_in))
        self.bias = nn.Parameter(torch.zeros(n_in, n_out))

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None = None,
        *,
        poses: Tensor | None = None,
        keep: Keep = "none",
        couple: Couple | None = None,
    ) -> Routed:
        self.check_bound(has_parameters=True)
        return self_routing(
            votes,
            activation,
            poses=poses,
            weight=self.weight,
            bias=self.bias,
            keep=keep,
            couple=couple,
        )
