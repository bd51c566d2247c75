"""Self-attention routing as a module."""

from typing import Any, Literal, final, get_args

import torch
from torch import nn

from torchcaps._checks import check_choice
from torchcaps.layers.routing.base import OpRouting, named
from torchcaps.ops.squashing import Squash


@named("self_attention")
@final
class SelfAttentionRouting(OpRouting):
    """`ops.self_attention_routing`, one pass, with its prior.

    Arguments:
        prior: what is added to the couplings. "learned": a number for every child and parent, zero
            at first. "zero": nothing.
        squash: the length of a parent: "hinton", "exp" or "none", as in `ops.squash`.

    >>> DenseCapsules(n_in=8, d_in=4, n_out=3, d_out=6, routing=SelfAttentionRouting())
    """

    algorithm = "self_attention"
    prior: nn.Parameter | None

    def __init__(self, *, prior: Literal["zero", "learned"] = "learned", squash: Squash = "exp"):
        super().__init__()
        check_choice("prior", prior, ("zero", "learned"))
        check_choice("squash", squash, get_args(Squash))
        self.squash: Squash = squash
        self.has_parameters = prior == "learned"
        if self.has_parameters:
            self.normalised_over = "none"
        self.register_parameter("prior", None)

    def create_parameters(self, *, n_in: int, n_out: int, d_out: int) -> None:
        if self.has_parameters:
            self.prior = nn.Parameter(torch.zeros(n_in, n_out))

    def options(self) -> dict[str, Any]:
        return {"bias": self.prior, "squash": self.squash}
