"""Dense capsules: every child votes for every parent [renzulli2025] §2.1."""

import math

import torch
from torch import nn

from torchcaps.errors import TorchcapsError
from torchcaps.layers.routing import Routing, as_routing
from torchcaps.ops.votes import materialise
from torchcaps.types import Capsules, Keep, Routed, VoteMap

__all__ = ["DenseCapsules"]


class DenseCapsules(nn.Module):
    """`n_out` parents of `d_out` components from `n_in` children of `d_in`, one matrix a pair.

    `weight_std` decides whether stacked layers learn at all: squashed lengths must neither vanish
    nor saturate layer after layer. 0.1, the custom for one layer, silences five of them.

    >>> layer = DenseCapsules(n_in=1152, d_in=8, n_out=10, d_out=16)
    >>> layer(Capsules(torch.rand(2, 1152, 8))).parents.pose.shape
    torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        *,
        n_in: int,
        d_in: int,
        n_out: int,
        d_out: int,
        routing: str | Routing = "dynamic",
        weight_std: float = 0.1,
    ):
        super().__init__()
        for name, size in (("n_in", n_in), ("d_in", d_in), ("n_out", n_out), ("d_out", d_out)):
            if size < 1:
                raise TorchcapsError(f"DenseCapsules needs {name} of at least 1, but got {size}.")
        if not 0 <= weight_std < math.inf:
            raise TorchcapsError(
                f"DenseCapsules needs a weight_std that is finite and not negative, but got "
                f"{weight_std}."
            )
        self.n_in, self.d_in, self.n_out, self.d_out = n_in, d_in, n_out, d_out
        self.weight = nn.Parameter(torch.randn(n_in, n_out, d_out, d_in) * weight_std)
        self.routing: Routing = as_routing(routing)
        self.routing.bind(n_in=n_in, n_out=n_out, d_out=d_out)

    def vote_map(self, children: Capsules) -> VoteMap:
        return VoteMap(children, self.weight)

    def forward(self, children: Capsules, *, keep: Keep = "none") -> Routed:
        if children.pose.shape[-2:] != (self.n_in, self.d_in):
            raise TorchcapsError(
                f"this layer was built for {self.n_in} children of {self.d_in} components "
                f"[*batch, {self.n_in}, {self.d_in}], but poses came with shape "
                f"{list(children.pose.shape)}; does the image size differ from the one the network "
                f"was created with?"
            )
        votes = materialise(self.vote_map(children))  # [*b, i, j, d]
        routed: Routed = self.routing(votes, children.activation, keep=keep)
        steps = tuple(step._replace(children=children) for step in routed.steps)
        return routed._replace(steps=steps)

    def extra_repr(self) -> str:
        return f"n_in={self.n_in}, d_in={self.d_in}, n_out={self.n_out}, d_out={self.d_out}"
