"""Inverted dot-product attention routing as a module."""

import math
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from torchcaps.layers.routing.backend import backend_module
from torchcaps.layers.routing.base import Routing
from torchcaps.ops.checks import check_choice, check_iterations, check_number
from torchcaps.ops.routing import inverted_routing, inverted_step
from torchcaps.types import Capsules, Keep, Routed, Step, VoteMap

__all__ = ["InvertedRouting"]


@final
class InvertedRouting(Routing):
    """`ops.inverted_routing` with its LayerNorm, one for all iterations; layers may route at once.

    `scaled` divides agreements by √d, as public code does and [tsai2020] §3 does not.
    `activations` is ablation C: children need them, and parents get them as EM routing has them.
    """

    algorithm = "inverted"
    gives_activations = False
    norm: nn.LayerNorm | None
    start: nn.Parameter | None

    def __init__(
        self,
        *,
        iterations: int = 2,
        layer_norm: bool = True,
        scaled: bool = False,
        activations: bool = False,
        start: Literal["none", "learned"] = "none",
        lambda_: float = 0.01,
    ):
        super().__init__()
        check_iterations(iterations)
        check_choice("start", start, ("none", "learned"))
        check_number("lambda_", lambda_)
        self.iterations = iterations
        self.layer_norm = layer_norm
        self.scaled = scaled
        self.activations = self.gives_activations = activations
        self.lambda_ = lambda_
        self._learns_start = start == "learned"
        self.norm = None
        for name in ("start", "beta_a", "beta_u"):
            self.register_parameter(name, None)

    def create_parameters(self, *, n_in: int, n_out: int, d_out: int) -> None:
        self.scale = 1 / math.sqrt(d_out) if self.scaled else 1.0
        if self.layer_norm:
            self.norm = nn.LayerNorm(d_out)
        if self._learns_start:
            self.start = nn.Parameter(torch.randn(n_out, d_out) / math.sqrt(d_out))
        if self.activations:
            self.beta_a = nn.Parameter(torch.zeros(n_out))
            self.beta_u = nn.Parameter(torch.zeros(n_out))

    def forward(self, votes: Tensor, activation: Tensor | None, *, keep: Keep = "none") -> Routed:
        return inverted_routing(
            votes, activation=activation if self.activations else None, keep=keep, **self.options()
        )

    def step(self, votes: Tensor, activation: Tensor | None, parents: Capsules | None) -> Step:
        now = self.start if parents is None else parents.pose
        return inverted_step(
            votes, now, activation=activation if self.activations else None, **self._of_a_step()
        )

    def fused_step(
        self, vote_map: VoteMap, parents: Capsules | None, *, keep: Keep = "none"
    ) -> Step:
        now = self.start if parents is None else parents.pose
        step: Step = backend_module(self.backend).inverted_step(
            vote_map, now, keep=keep, **self._of_a_step()
        )
        return step

    def options(self) -> dict[str, Any]:
        return {"iterations": self.iterations, "start": self.start, **self._of_a_step()}

    def _of_a_step(self) -> dict[str, Any]:
        """What every iteration is asked."""
        options: dict[str, Any] = {"scale": self.scale}
        if self.norm is not None:
            options["norm"] = (self.norm.weight, self.norm.bias)
        if self.activations:
            options |= {"beta_a": self.beta_a, "beta_u": self.beta_u, "lambda_": self.lambda_}
        return options
