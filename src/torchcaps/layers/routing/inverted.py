"""Inverted dot-product attention routing as a module."""

import math
from collections.abc import Callable
from typing import Any, Literal, final, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from torchcaps._checks import check_choice, check_flag, check_number
from torchcaps.errors import TorchcapsError
from torchcaps.layers.routing.base import OpRouting, named
from torchcaps.ops.backend import fused_form
from torchcaps.ops.checks import check_iterations, check_keep, widen, without_autocast
from torchcaps.ops.routing import inverted_routing, inverted_step
from torchcaps.ops.routing.inverted import normalised
from torchcaps.types import Capsules, Couple, Keep, Routed, Step, VoteMap

# The parents before the first iteration: zero, drawn once and never changed, or learned.
Start = Literal["none", "random", "learned"]
ZERO = ("zero", "zeros")


@named("inverted")
@final
class InvertedRouting(OpRouting):
    """`ops.inverted_routing` with its LayerNorm, one for all iterations; layers may route at once.

    Ambiguities: footnote 1 of [tsai2020] does not say how often a random start is drawn. Here it is
    drawn with the weights and kept as a buffer, the same for every image, so that a prediction is a
    function of its image. Drawn and learned starts begin as N(0, 1/d).

    Arguments:
        iterations: how often parents are made, from 1.
        layer_norm: whether parents are normalised after every iteration.
        scaled: whether agreements are divided by √d, as in public code; [tsai2020] §3 does not.
        activations: ablation C: children need activations, and parents get them as EM routing has
            them.
        start: the parents before the first iteration, footnote 1 of [tsai2020]: "none", "random" or
            "learned".
        dropout: so large a share of the components of parents is silenced in every iteration of
            training, before they are normalised, as in public code.
        lambda_: the inverse temperature of activations, where there are some.

    >>> DenseCapsules(n_in=8, d_in=16, n_out=3, d_out=16, pose="matrix", routing=InvertedRouting())
    """

    algorithm = "inverted"
    gives_activations = False
    norm: nn.LayerNorm | None
    start: Tensor | None

    def __init__(
        self,
        *,
        iterations: int = 2,
        layer_norm: bool = True,
        scaled: bool = False,
        activations: bool = False,
        start: Start = "none",
        dropout: float = 0.0,
        lambda_: float = 0.01,
    ):
        super().__init__()
        check_iterations(iterations)
        check_choice("start", start, get_args(Start), meant=dict.fromkeys(ZERO, "none"))
        flags = {"layer_norm": layer_norm, "scaled": scaled, "activations": activations}
        for name, flag in flags.items():
            check_flag(name, flag)
        check_number("lambda_", lambda_)
        check_number("dropout", dropout, below=1, so="it is the share of silenced components")
        if dropout and activations:
            raise TorchcapsError(
                f"dropout={dropout} changes how far votes spread around parents, and activations "
                f"are made of that spread; use either dropout or activations."
            )
        self.iterations = iterations
        self.layer_norm = layer_norm
        self.scaled = scaled
        self.activations = self.gives_activations = activations
        self.lambda_ = lambda_
        self.scale = 1.0
        self.dropout = dropout
        self._start: Start = start
        self.has_parameters = layer_norm or scaled or activations or start != "none"
        self.norm = None
        for name in ("beta_a", "beta_u"):
            self.register_parameter(name, None)
        if start == "random":
            self.register_buffer("start", None)
        else:
            self.register_parameter("start", None)

    def create_parameters(self, *, n_in: int, n_out: int, d_out: int) -> None:
        if self.scaled:
            self.scale = 1 / math.sqrt(d_out)
        if self.layer_norm:
            self.norm = nn.LayerNorm(d_out)
        if self._start != "none":
            drawn = torch.empty(n_out, d_out)
            if not drawn.is_meta:
                drawn.normal_().div_(math.sqrt(d_out))
            self.start = nn.Parameter(drawn) if self._start == "learned" else drawn
        if self.activations:
            self.beta_a = nn.Parameter(torch.zeros(n_out))
            self.beta_u = nn.Parameter(torch.zeros(n_out))

    def op(self, votes: Tensor, activation: Tensor | None, **asked: Any) -> Routed:
        if self._drops:
            return self._step_by_step(
                lambda parents, couple: self.step(votes, activation, parents, couple=couple),
                asked["keep"],
                asked["couple"],
            )
        return inverted_routing(votes, activation if self.activations else None, **asked)

    def step(
        self,
        votes: Tensor,
        activation: Tensor | None,
        parents: Capsules | None,
        *,
        couple: Couple | None = None,
    ) -> Step:
        now = self.start if parents is None else parents.pose
        seen = activation if self.activations else None
        step = inverted_step(votes, now, activation=seen, couple=couple, **self._of_a_step())
        return self._dropped(step) if self._drops else step

    def fused_step(
        self,
        vote_map: VoteMap,
        parents: Capsules | None,
        *,
        keep: Keep = "none",
        couple: Couple | None = None,
    ) -> Step:
        now = self.start if parents is None else parents.pose
        route = fused_form(self.backend, self.algorithm)
        options = self._of_a_step() | {"iterations": 1, "start": now}
        routed = route(vote_map, keep=keep, couple=couple, **options)
        unkept = Step(None, routed.parents.pose.new_empty(0), routed.parents)
        step = routed.steps[0] if routed.steps else unkept
        return self._dropped(step) if self._drops else step

    def fused(
        self, vote_map: VoteMap, *, keep: Keep = "none", couple: Couple | None = None
    ) -> Routed:
        if self._drops:
            return self._step_by_step(
                lambda now, couple: self.fused_step(vote_map, now, keep=keep, couple=couple),
                keep,
                couple,
            )
        return super().fused(vote_map, keep=keep, couple=couple)

    def options(self) -> dict[str, Any]:
        return {"iterations": self.iterations, "start": self.start, **self._of_a_step()}

    def _of_a_step(self) -> dict[str, Any]:
        """Give what every iteration is asked."""
        options: dict[str, Any] = {"scale": self.scale}
        if self.norm is not None and not self._drops:
            options["norm"] = (self.norm.weight, self.norm.bias)
        if self.activations:
            options |= {"beta_a": self.beta_a, "beta_u": self.beta_u, "lambda_": self.lambda_}
        return options

    @property
    def _drops(self) -> bool:
        return self.training and self.dropout > 0

    def _step_by_step(
        self,
        route: Callable[[Capsules | None, Couple | None], Step],
        keep: Keep,
        couple: Couple | None,
    ) -> Routed:
        """Take all iterations in single steps, since what is dropped is drawn between them."""
        check_keep(keep)
        steps: list[Step] = []
        for t in range(1, self.iterations + 1):
            now = steps[-1].parents if steps else None
            steps.append(route(now, couple if t == self.iterations else None))
        kept = {"none": 0, "last": 1, "steps": self.iterations}[keep]
        return Routed(steps[-1].parents, tuple(steps[self.iterations - kept :]))

    def _dropped(self, step: Step) -> Step:
        """Drop poses that are not normalised yet."""
        pose = dropout(step.parents.pose, self.dropout)
        if self.norm is not None:
            wide = widen(pose)
            with without_autocast(wide):
                weight, bias = (x.to(wide.dtype) for x in (self.norm.weight, self.norm.bias))
                wide = normalised(wide, weight, bias)
            pose = wide.to(pose.dtype)
        return step._replace(parents=Capsules(pose, None))
