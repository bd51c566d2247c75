"""Routings as modules: they own the parameters that an op takes as arguments.

An abstract `Routing` and one final class for each algorithm. A layer binds its routing once, when
it knows its sizes; the same line therefore reads the same for any layer:

>>> DenseCapsules(n_in=1152, d_in=8, n_out=10, d_out=16, routing=DynamicRouting(iterations=5))
"""

import inspect
import math
from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any, Literal, final, get_args

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, nearest
from torchcaps.layers.large_conv import LargeConv2d
from torchcaps.layers.small_conv import SmallConv2d
from torchcaps.layers.squash_maps import SquashMaps
from torchcaps.layers.tracing import is_looked_through
from torchcaps.layers.whole_map import WholeMapConv2d
from torchcaps.ops import fused, native, triton
from torchcaps.ops.checks import check_choice, check_iterations, check_number, widen
from torchcaps.ops.native.dynamic import MOST_ITERATIONS
from torchcaps.ops.routing import (
    Compete,
    Detach,
    DetachVotes,
    EMVariant,
    Normalise,
    Scale,
    distance_routing,
    dynamic_routing,
    em_routing,
    inverted_routing,
    inverted_step,
    self_attention_routing,
    uniform_routing,
)
from torchcaps.ops.routing.em import check_em_numbers
from torchcaps.ops.squash import EPSILON, Squash
from torchcaps.ops.votes import materialise
from torchcaps.types import Capsules, Keep, Routed, Step, VoteMap, Window

__all__ = [
    "ROUTINGS",
    "Backend",
    "DistanceRouting",
    "DynamicRouting",
    "EMRouting",
    "InvertedRouting",
    "Routing",
    "SelfAttentionRouting",
    "UniformRouting",
    "as_routing",
    "make_routing",
    "use_backend",
]


# How a layer routes. "plain": the votes are made, then routed. "fused": they are made a tile at a
# time and never stored, by PyTorch. "native" and "triton": the same by a compiled kernel, for
# processors and for GPUs, and by PyTorch where a routing has none. "auto": native where not storing
# pays, else plain; not triton as long as nobody has measured it on a GPU.
Backend = Literal["auto", "plain", "fused", "native", "triton"]
# So many numbers of votes fit into a cache, where tiles are a detour; and what runs along them are
# the lanes, samples times windows: a few leave it idle. Both measured on CPUs.
FUSED_FROM, LANES_FROM = 1 << 21, 16
# A native kernel pays sooner. Left to predictions, for it gives no gradients of gradients.
KERNEL_FROM = 1 << 17


class Routing(nn.Module, ABC):
    """From votes [*b, i, j, d] and child activations [*b, i] to `Routed`."""

    backend: Backend = "auto"

    # The axis over which the couplings of a trace sum to one.
    normalised_over: str = "parents"
    # Whether parents come with an activation, by which classes can score.
    gives_activations: bool = True
    # How the layer looks at its children; votes are then [*b, p, i, j, d].
    window: Window | None = None

    _is_bound: bool = False

    @final
    def bind(self, *, n_in: int, n_out: int, d_out: int, window: Window | None = None) -> None:
        """Give the routing its sizes; the layer calls this once. `n_in` counts the children that
        one parent sees."""
        if self._is_bound:
            raise TorchcapsError(
                f"this {type(self).__name__} belongs to a layer already; every layer needs "
                f"a routing of its own."
            )
        self._is_bound = True
        self.window = window
        self.create_parameters(n_in=n_in, n_out=n_out, d_out=d_out)

    @abstractmethod
    def create_parameters(self, *, n_in: int, n_out: int, d_out: int) -> None:
        """Create the parameters, if any, for a layer of this size."""

    @abstractmethod
    def forward(
        self, votes: Tensor, activation: Tensor | None, *, keep: Keep = "none"
    ) -> Routed: ...

    @property
    def can_fuse(self) -> bool:
        """Whether `fused` can do what `forward` does, with the options of this routing."""
        return False

    def has_kernel(self, vote_map: VoteMap) -> bool:
        """Whether a native kernel knows such votes and predicts sooner by them than the plain form
        does; if not, "native" may be the form in PyTorch."""
        return False

    def fused(self, vote_map: VoteMap, *, keep: Keep = "none") -> Routed:
        """The same as `forward` without a vote tensor, where an algorithm has such a form."""
        raise self._no_fused_form()

    @final
    def fuses(self, vote_map: VoteMap) -> bool:
        """Whether these votes are better not stored."""
        told = self.backend in ("fused", "native", "triton")
        if told and not self.can_fuse:
            raise self._no_fused_form()
        if self.backend != "auto" or not self.can_fuse:
            return told
        # Before counting: to ask for the batch size binds an exported graph to the answer.
        if torch.compiler.is_exporting() or is_looked_through():
            return False
        lanes = _lanes(vote_map)
        if lanes < LANES_FROM:
            return False
        numbers = lanes * _numbers(vote_map)
        return numbers >= FUSED_FROM or (
            numbers >= KERNEL_FROM and self.has_kernel(vote_map) and _runs_kernels(vote_map)
        )

    @final
    def route(self, vote_map: VoteMap, activation: Tensor | None, *, keep: Keep = "none") -> Routed:
        """From what stands between children and votes; `activation` [*b, i] as parents see it."""
        if self.fuses(vote_map):
            return self.fused(vote_map, keep=keep)
        routed: Routed = self(materialise(vote_map), activation, keep=keep)
        return routed

    def _no_fused_form(self) -> TorchcapsError:
        return TorchcapsError(
            f"{type(self).__name__} has no fused form with these options; use "
            f'backend="auto", which falls back to the plain one.'
        )

    def step(self, votes: Tensor, activation: Tensor | None, parents: Capsules | None) -> Step:
        """One iteration from the present parents (None: the first), for concurrent schedules.

        Only a routing whose whole state is its parents can offer it.
        """
        raise TorchcapsError(
            f"{type(self).__name__} keeps more than its parents from one iteration to the next, so "
            f'its layers cannot route at once; use schedule="sequential", or inverted routing.'
        )

    def fused_step(
        self, vote_map: VoteMap, parents: Capsules | None, *, keep: Keep = "none"
    ) -> Step:
        """The same as `step` without a vote tensor."""
        raise self._no_fused_form()


@final
class DynamicRouting(Routing):
    """`ops.dynamic_routing` with its prior and bias.

    `prior="learned"` starts at zero and is shared by the batch [mitterreiter2023] §3.3; `bias=True`
    is one vector a parent, started at 0.1, without which x and −x cannot be told apart [peer2022]
    §4.1; bias="odd" is its control, which cannot either.
    """

    prior: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        *,
        iterations: int = 3,
        prior: Literal["zero", "learned"] = "zero",
        bias: bool | Literal["odd"] = False,
        leaky: bool = False,
        squash: Squash = "hinton",
        detach: Detach = "none",
    ):
        super().__init__()
        check_iterations(iterations)
        check_choice("prior", prior, ("zero", "learned"))
        check_choice("squash", squash, get_args(Squash))
        check_choice("detach", detach, get_args(Detach))
        if bias not in (False, True, "odd"):
            raise TorchcapsError(f'bias must be False, True or "odd", but came as {bias!r}.')
        self.iterations = iterations
        self.leaky = leaky
        if leaky:
            self.normalised_over = "none"
        self.squash: Squash = squash
        self.detach: Detach = detach
        self.odd_bias = bias == "odd"
        self._learns_prior = prior == "learned"
        self._has_bias = bool(bias)
        self.register_parameter("prior", None)
        self.register_parameter("bias", None)

    def create_parameters(self, *, n_in: int, n_out: int, d_out: int) -> None:
        if self._learns_prior:
            self.prior = nn.Parameter(torch.zeros(n_in, n_out))
        if self._has_bias:
            self.bias = nn.Parameter(torch.full((n_out, d_out), 0.1))

    @property
    def can_fuse(self) -> bool:
        return True

    def forward(self, votes: Tensor, activation: Tensor | None, *, keep: Keep = "none") -> Routed:
        return dynamic_routing(votes, keep=keep, **self._options())

    def has_kernel(self, vote_map: VoteMap) -> bool:
        return vote_map.window is None and self.iterations <= MOST_ITERATIONS

    def fused(self, vote_map: VoteMap, *, keep: Keep = "none") -> Routed:
        forms = _forms(self.backend)
        routed: Routed = forms.dynamic_routing(vote_map, keep=keep, **self._options())
        return routed

    def _options(self) -> dict[str, Any]:
        return {
            "iterations": self.iterations,
            "bias": self.bias,
            "prior": self.prior,
            "odd_bias": self.odd_bias,
            "leaky": self.leaky,
            "squash": self.squash,
            "detach": self.detach,
        }


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
        _check_bias(bias)
        self.normalise: Normalise = normalise
        self.squash: Squash = squash
        self.normalised_over = "parents" if normalise == "softmax" else "children"
        self._has_bias = bias
        self.register_parameter("bias", None)

    def create_parameters(self, *, n_in: int, n_out: int, d_out: int) -> None:
        if self._has_bias:
            self.bias = nn.Parameter(torch.full((n_out, d_out), 0.1))

    @property
    def can_fuse(self) -> bool:
        return True

    def forward(self, votes: Tensor, activation: Tensor | None, *, keep: Keep = "none") -> Routed:
        return uniform_routing(votes, keep=keep, **self._options())

    def fused(self, vote_map: VoteMap, *, keep: Keep = "none") -> Routed:
        return fused.uniform_routing(vote_map, keep=keep, **self._options())

    def _options(self) -> dict[str, Any]:
        return {"normalise": self.normalise, "bias": self.bias, "squash": self.squash}


@final
class EMRouting(Routing):
    """`ops.em_routing` with its costs β_a and β_u, one pair a parent (a parent type in windows).

    Children need activations: those of `EMPrimaryCapsules`, or lengths. With compete="all" windows
    share a child, with "window" each has it to itself. `unit_poses` gives parents the pose
    a_j μ_j / ‖μ_j‖, as public code of [peer2022] does: means of narrow layers shrink from layer to
    layer, directions do not.
    """

    beta_a: nn.Parameter
    beta_u: nn.Parameter

    def __init__(
        self,
        *,
        iterations: int = 3,
        variant: EMVariant = "paper",
        compete: Compete = "window",
        lambda_: float = 0.01,
        variance_floor: float | None = None,
        unit_poses: bool = False,
    ):
        super().__init__()
        check_iterations(iterations)
        check_choice("variant", variant, get_args(EMVariant))
        check_choice("compete", compete, get_args(Compete))
        check_em_numbers(lambda_, variance_floor)
        self.iterations = iterations
        self.variant: EMVariant = variant
        self.compete: Compete = compete
        self.lambda_ = lambda_
        self.variance_floor = variance_floor
        self.unit_poses = unit_poses

    def create_parameters(self, *, n_in: int, n_out: int, d_out: int) -> None:
        if self.compete == "all":
            self._check_window()
            self.normalised_over = "parents_and_positions"
        a, u = torch.zeros(n_out), torch.zeros(n_out)
        if self.variant == "paper":  # as public code of [peer2022]
            a, u = a.normal_(0, 0.1), u.normal_(0, 0.1)
        elif self.variant == "official":  # as its code, for windows and for classes
            a, u = (a + 1.0, u + 2.0) if self.window is None else (a + 0.5, u + 0.5)
        else:  # as its code
            a = nn.init.trunc_normal_(a, -1000, 500, -2000, 0)
            u = u.uniform_(-1, 1) * math.sqrt(6 / (n_out + d_out))
        self.beta_a, self.beta_u = nn.Parameter(a), nn.Parameter(u)

    def forward(self, votes: Tensor, activation: Tensor | None, *, keep: Keep = "none") -> Routed:
        return self._finished(em_routing(votes, activation, keep=keep, **self._options(votes)))

    @property
    def can_fuse(self) -> bool:
        return True

    def has_kernel(self, vote_map: VoteMap) -> bool:
        return True

    def fused(self, vote_map: VoteMap, *, keep: Keep = "none") -> Routed:
        options = self._options(vote_map.children.pose)
        return self._finished(_forms(self.backend).em_routing(vote_map, keep=keep, **options))

    def _options(self, like: Tensor) -> dict[str, Any]:
        child_id = None
        if self.compete == "all" and self.window is not None:
            child_id = self.window.child_id(like.device)
        return {
            "beta_a": self.beta_a,
            "beta_u": self.beta_u,
            "iterations": self.iterations,
            "variant": self.variant,
            "compete": self.compete,
            "child_id": child_id,
            "lambda_": self.lambda_,
            "variance_floor": self.variance_floor,
        }

    def _finished(self, routed: Routed) -> Routed:
        if not self.unit_poses:
            return routed
        steps = tuple(step._replace(parents=_unit(step.parents)) for step in routed.steps)
        return routed._replace(parents=_unit(routed.parents), steps=steps)

    def _check_window(self) -> None:
        if self.window is None:
            raise TorchcapsError(
                'compete="all" is for convolutional capsules, where several windows see a child; '
                'a dense layer has one window: use compete="window".'
            )


@final
class InvertedRouting(Routing):
    """`ops.inverted_routing` with its LayerNorm, one for all iterations; layers may route at once.

    `scaled` divides agreements by √d, as public code does and [tsai2020] §3 does not.
    `activations` is ablation C: children need them, and parents get them as EM routing has them.
    """

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
            votes,
            iterations=self.iterations,
            start=self.start,
            keep=keep,
            **self._options(activation),
        )

    def step(self, votes: Tensor, activation: Tensor | None, parents: Capsules | None) -> Step:
        now = self.start if parents is None else parents.pose
        return inverted_step(votes, now, **self._options(activation))

    @property
    def can_fuse(self) -> bool:
        return not self.activations

    def has_kernel(self, vote_map: VoteMap) -> bool:
        return vote_map.bias is None

    def fused(self, vote_map: VoteMap, *, keep: Keep = "none") -> Routed:
        options = self._options(None)
        options |= {"iterations": self.iterations, "start": self.start}
        routed: Routed = _forms(self.backend).inverted_routing(vote_map, keep=keep, **options)
        return routed

    def fused_step(
        self, vote_map: VoteMap, parents: Capsules | None, *, keep: Keep = "none"
    ) -> Step:
        now = self.start if parents is None else parents.pose
        options = self._options(None)
        step: Step = _forms(self.backend).inverted_step(vote_map, now, keep=keep, **options)
        return step

    def _options(self, activation: Tensor | None) -> dict[str, Any]:
        options: dict[str, Any] = {"scale": self.scale}
        if self.norm is not None:
            options["norm"] = (self.norm.weight, self.norm.bias)
        if self.activations:
            options |= {
                "activation": activation,
                "beta_a": self.beta_a,
                "beta_u": self.beta_u,
                "lambda_": self.lambda_,
            }
        return options


@final
class SelfAttentionRouting(Routing):
    """`ops.self_attention_routing`, one pass; `prior` is added to the couplings, and starts at
    zero."""

    prior: nn.Parameter | None

    def __init__(self, *, prior: Literal["zero", "learned"] = "learned", squash: Squash = "exp"):
        super().__init__()
        check_choice("prior", prior, ("zero", "learned"))
        check_choice("squash", squash, get_args(Squash))
        self.squash: Squash = squash
        self._learns_prior = prior == "learned"
        if self._learns_prior:
            self.normalised_over = "none"
        self.register_parameter("prior", None)

    def create_parameters(self, *, n_in: int, n_out: int, d_out: int) -> None:
        if self._learns_prior:
            self.prior = nn.Parameter(torch.zeros(n_in, n_out))

    def forward(self, votes: Tensor, activation: Tensor | None, *, keep: Keep = "none") -> Routed:
        return self_attention_routing(votes, bias=self.prior, squash=self.squash, keep=keep)

    @property
    def can_fuse(self) -> bool:
        return True

    def fused(self, vote_map: VoteMap, *, keep: Keep = "none") -> Routed:
        routed: Routed = _forms(self.backend).self_attention_routing(
            vote_map, bias=self.prior, squash=self.squash, keep=keep
        )
        return routed


@final
class DistanceRouting(Routing):
    """`ops.distance_routing` of γ-capsules, with its bias.

    scale="batch" measures distances over the batch, as public code does. In evaluation it goes by
    their running mean, so that an image's result does not depend on its neighbours.
    """

    bias: nn.Parameter | None
    running_scale: Tensor
    MOMENTUM = 0.1

    def __init__(
        self,
        *,
        iterations: int = 3,
        scale: Scale = "sample",
        bias: bool = False,
        squash: Squash = "hinton",
        detach: DetachVotes = "none",
    ):
        super().__init__()
        check_iterations(iterations)
        check_choice("scale", scale, get_args(Scale))
        check_choice("squash", squash, get_args(Squash))
        check_choice("detach", detach, get_args(DetachVotes))
        _check_bias(bias)
        self.iterations = iterations
        self.scale: Scale = scale
        self.squash: Squash = squash
        self.detach: DetachVotes = detach
        self._has_bias = bias
        self.register_parameter("bias", None)

    def create_parameters(self, *, n_in: int, n_out: int, d_out: int) -> None:
        if self._has_bias:
            self.bias = nn.Parameter(torch.full((n_out, d_out), 0.1))
        if self.scale == "batch":
            self.register_buffer("running_scale", torch.ones(self.iterations - 1))

    def forward(self, votes: Tensor, activation: Tensor | None, *, keep: Keep = "none") -> Routed:
        if activation is None:
            raise TorchcapsError(
                "distance routing keeps votes as short as their children, but the children came "
                "without lengths; give them, for example Capsules(pose, pose.norm(dim=-1))."
            )
        return self._measured(distance_routing(votes, activation, keep=keep, **self._options()))

    @property
    def can_fuse(self) -> bool:
        return True

    def has_kernel(self, vote_map: VoteMap) -> bool:
        return vote_map.window is None and self.iterations <= MOST_ITERATIONS

    def fused(self, vote_map: VoteMap, *, keep: Keep = "none") -> Routed:
        forms = _forms(self.backend)
        return self._measured(forms.distance_routing(vote_map, keep=keep, **self._options()))

    def _options(self) -> dict[str, Any]:
        stored = self.scale == "batch" and not self.training
        return {
            "iterations": self.iterations,
            "scale": self.running_scale if stored else self.scale,
            "bias": self.bias,
            "squash": self.squash,
            "detach": self.detach,
        }

    def _measured(self, routed: Routed) -> Routed:
        distances, pose = routed.scale, routed.parents.pose
        if self.scale == "batch" and self.training and distances is not None and pose.numel():
            with torch.no_grad():
                self.running_scale.lerp_(distances.to(self.running_scale), self.MOMENTUM)
        return routed


def _check_bias(bias: bool) -> None:
    if not isinstance(bias, bool):
        raise TorchcapsError(f"bias must be True or False, but came as {bias!r}.")


def use_backend(module: nn.Module, backend: Backend) -> None:
    """Choose how every routing inside a module routes; "plain" is plain for convolutions too."""
    check_choice("backend", backend, get_args(Backend))
    for part in module.modules():
        if isinstance(part, LargeConv2d | SmallConv2d | SquashMaps | WholeMapConv2d):
            part.is_direct = backend == "plain"
        if isinstance(part, Routing):
            part.backend = backend


def _forms(backend: Backend) -> ModuleType:
    """Where the fused form of a routing is that has more than one."""
    return {"fused": fused, "triton": triton}.get(backend, native)


def _runs_kernels(vote_map: VoteMap) -> bool:
    """Whether native kernels run here and now, for numbers that nobody differentiates."""
    pose = vote_map.children.pose
    if torch.is_grad_enabled() or pose.device.type != "cpu" or pose.dtype == torch.float64:
        return False
    seen = torch.compiler.is_compiling() or is_looked_through()
    return not seen and native.available()


def _lanes(vote_map: VoteMap) -> int:
    """How many samples there are, each through every window."""
    samples, window = math.prod(vote_map.children.pose.shape[:-2]), vote_map.window
    return samples if window is None else samples * math.prod(window.positions)


def _numbers(vote_map: VoteMap) -> int:
    """How many numbers the votes of one lane would be."""
    pose, window = vote_map.children.pose, vote_map.window
    slots = pose.shape[-2]
    size = pose.shape[-1] if vote_map.pose == "matrix" else vote_map.weight.shape[-2]
    if window is not None:
        slots = math.prod(window.kernel) * window.child_grid[-1]
    return slots * vote_map.weight.shape[-3] * size


def _unit(capsules: Capsules) -> Capsules:
    """Poses as long as their activations."""
    mean, activation = capsules
    assert activation is not None
    wide = widen(mean)
    norm = torch.sqrt(wide.square().sum(-1, keepdim=True) + EPSILON)
    return Capsules((wide / norm).to(mean.dtype) * activation.unsqueeze(-1), activation)


# One line an algorithm: the name that layers, models and the command line take.
ROUTINGS: dict[str, type[Routing]] = {
    "distance": DistanceRouting,
    "dynamic": DynamicRouting,
    "em": EMRouting,
    "inverted": InvertedRouting,
    "self_attention": SelfAttentionRouting,
    "uniform": UniformRouting,
}


def as_routing(routing: str | Routing) -> Routing:
    """A routing by its name, with its defaults; one that is given stays as it is."""
    if isinstance(routing, type):
        raise TorchcapsError(
            f"a layer takes a routing or its name, but got the class {routing.__name__}; call it: "
            f"{routing.__name__}()."
        )
    return routing if isinstance(routing, Routing) else make_routing(routing)


def make_routing(name: str, **options: Any) -> Routing:
    """A routing by its name with those of the options that it knows.

    So a network can offer every routing: uniform routing, say, has no use for iterations. What no
    routing knows is refused.
    """
    if name not in ROUTINGS:
        raise TorchcapsError(f"routing={name!r} is unknown; {nearest(str(name), ROUTINGS)}.")
    taken = {key: list(inspect.signature(routing).parameters) for key, routing in ROUTINGS.items()}
    all_taken = {option for options_of_one in taken.values() for option in options_of_one}
    for option in options:
        if option not in all_taken:
            raise TorchcapsError(
                f"no routing has an option {option!r}; {nearest(option, sorted(all_taken))}."
            )
    return ROUTINGS[name](**{key: value for key, value in options.items() if key in taken[name]})
