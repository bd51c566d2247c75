"""Routings as modules: they own the parameters that an op takes as arguments.

An abstract `Routing` and one final class for each algorithm. A layer binds its routing once, when
it knows its sizes; the same line therefore reads the same for any layer:

>>> DenseCapsules(n_in=1152, d_in=8, n_out=10, d_out=16, routing=DynamicRouting(iterations=5))
"""

import inspect
from abc import ABC, abstractmethod
from typing import Any, Literal, final, get_args

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, nearest
from torchcaps.ops.checks import check_choice, check_iterations
from torchcaps.ops.routing import Detach, Normalise, dynamic_routing, uniform_routing
from torchcaps.ops.squash import Squash
from torchcaps.types import Keep, Routed

__all__ = ["ROUTINGS", "DynamicRouting", "Routing", "UniformRouting", "as_routing", "make_routing"]


class Routing(nn.Module, ABC):
    """From votes [*b, i, j, d] and child activations [*b, i] to `Routed`."""

    # The axis over which the couplings of a trace sum to one.
    normalised_over: str = "parents"

    _is_bound: bool = False

    @final
    def bind(self, *, n_in: int, n_out: int, d_out: int) -> None:
        """Give the routing its sizes; the layer calls this once."""
        if self._is_bound:
            raise TorchcapsError(
                f"this {type(self).__name__} belongs to a layer already; every layer needs "
                f"a routing of its own."
            )
        self._is_bound = True
        self.create_parameters(n_in=n_in, n_out=n_out, d_out=d_out)

    @abstractmethod
    def create_parameters(self, *, n_in: int, n_out: int, d_out: int) -> None:
        """Create the parameters, if any, for a layer of this size."""

    @abstractmethod
    def forward(
        self, votes: Tensor, activation: Tensor | None, *, keep: Keep = "none"
    ) -> Routed: ...


@final
class DynamicRouting(Routing):
    """`ops.dynamic_routing` with its prior and bias.

    `prior="learned"` starts at zero and is shared by the batch [mitterreiter2023] §3.3; `bias=True`
    is one vector a parent, started at 0.1, without which x and −x cannot be told apart [peer2022]
    §4.1.
    """

    prior: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        *,
        iterations: int = 3,
        prior: Literal["zero", "learned"] = "zero",
        bias: bool = False,
        leaky: bool = False,
        squash: Squash = "hinton",
        detach: Detach = "none",
    ):
        super().__init__()
        check_iterations(iterations)
        check_choice("prior", prior, ("zero", "learned"))
        check_choice("squash", squash, get_args(Squash))
        check_choice("detach", detach, get_args(Detach))
        self.iterations = iterations
        self.leaky = leaky
        self.squash: Squash = squash
        self.detach: Detach = detach
        self._learns_prior = prior == "learned"
        self._has_bias = bias
        self.register_parameter("prior", None)
        self.register_parameter("bias", None)

    def create_parameters(self, *, n_in: int, n_out: int, d_out: int) -> None:
        if self._learns_prior:
            self.prior = nn.Parameter(torch.zeros(n_in, n_out))
        if self._has_bias:
            self.bias = nn.Parameter(torch.full((n_out, d_out), 0.1))

    def forward(self, votes: Tensor, activation: Tensor | None, *, keep: Keep = "none") -> Routed:
        return dynamic_routing(
            votes,
            iterations=self.iterations,
            bias=self.bias,
            prior=self.prior,
            leaky=self.leaky,
            squash=self.squash,
            detach=self.detach,
            keep=keep,
        )


@final
class UniformRouting(Routing):
    """`ops.uniform_routing` with its bias: the twin in which couplings carry no information."""

    bias: nn.Parameter | None

    def __init__(
        self, *, normalise: Normalise = "softmax", bias: bool = False, squash: Squash = "hinton"
    ):
        super().__init__()
        check_choice("normalise", normalise, get_args(Normalise))
        check_choice("squash", squash, get_args(Squash))
        self.normalise: Normalise = normalise
        self.squash: Squash = squash
        self.normalised_over = "parents" if normalise == "softmax" else "children"
        self._has_bias = bias
        self.register_parameter("bias", None)

    def create_parameters(self, *, n_in: int, n_out: int, d_out: int) -> None:
        if self._has_bias:
            self.bias = nn.Parameter(torch.full((n_out, d_out), 0.1))

    def forward(self, votes: Tensor, activation: Tensor | None, *, keep: Keep = "none") -> Routed:
        return uniform_routing(
            votes, normalise=self.normalise, bias=self.bias, squash=self.squash, keep=keep
        )


# One line an algorithm: the name that layers, models and the command line take.
ROUTINGS: dict[str, type[Routing]] = {"dynamic": DynamicRouting, "uniform": UniformRouting}


def as_routing(routing: str | Routing) -> Routing:
    """A routing by its name, with its defaults; one that is given stays as it is."""
    return routing if isinstance(routing, Routing) else make_routing(routing)


def make_routing(name: str, **options: Any) -> Routing:
    """A routing by its name with those of the options that it knows.

    So a network can offer every routing: uniform routing, say, has no use for iterations.
    """
    if name not in ROUTINGS:
        raise TorchcapsError(f"routing={name!r} is unknown; {nearest(str(name), ROUTINGS)}.")
    known = inspect.signature(ROUTINGS[name]).parameters
    return ROUTINGS[name](**{key: value for key, value in options.items() if key in known})
