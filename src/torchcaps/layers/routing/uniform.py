"""Uniform routing as a module."""

from typing import final, get_args

import torch
from torch import nn

from torchcaps._checks import check_choice, check_flag
from torchcaps.layers.routing.base import OpRouting, named
from torchcaps.ops.routing import Normalise
from torchcaps.ops.squashing import Squash


@named("uniform")
@final
class UniformRouting(OpRouting):
    """`ops.uniform_routing` with its bias: the twin in which couplings carry no information.

    Arguments:
        normalise: "softmax": every coupling is 1/parents. "mean": it is 1/children.
        bias: whether every parent has a learned vector added before the squash.
        squash: the length of a parent: "hinton", "exp" or "none", as in `ops.squash`.

    >>> DenseCapsules(n_in=8, d_in=4, n_out=3, d_out=6, routing=UniformRouting())
    """

    algorithm = "uniform"
    told = ("normalise", "bias", "squash")
    bias: nn.Parameter | None

    def __init__(
        self, *, normalise: Normalise = "softmax", bias: bool = False, squash: Squash = "hinton"
    ):
        super().__init__()
        check_choice("normalise", normalise, get_args(Normalise))
        check_choice("squash", squash, get_args(Squash))
        check_flag("bias", bias)
        self.normalise: Normalise = normalise
        self.squash: Squash = squash
        self.normalised_over = "parents" if normalise == "softmax" else "children"
        self.has_parameters = bias
        self.register_parameter("bias", None)

    def create_parameters(self, *, n_in: int, n_out: int, d_out: int) -> None:
        if self.has_parameters:
            self.bias = nn.Parameter(torch.full((n_out, d_out), 0.1))
