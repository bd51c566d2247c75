"""What every routing module is: an abstract class that owns parameters and calls an op."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar, final

from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.layers.hooks import has_hooks
from torchcaps.layers.routing.gave import check_gave
from torchcaps.ops.backend import Backend, fused_form, has_form, is_fused, no_fused_form
from torchcaps.ops.by_name import PLAIN
from torchcaps.ops.votes import materialise, seen_poses
from torchcaps.types import Capsules, Couple, Keep, Routed, Step, VoteMap, Window

R = TypeVar("R", bound="Routing")


class Routing(nn.Module, ABC):
    """From votes [*b, i, j, d] and child activations [*b, i] to `Routed`."""

    backend: Backend = "auto"
    # The name by which the backends of `ops` know the algorithm, if they do.
    algorithm: str = ""

    # The axis over which the couplings of a trace sum to one.
    normalised_over: str = "parents"
    # Whether parents come with an activation, by which classes can score.
    gives_activations: bool = True
    # How the layer looks at its children; votes are then [*b, p, i, j, d].
    window: Window | None = None

    _is_bound: bool = False
    _takes_keep: bool = True
    _takes_poses: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Once a class: to read a signature takes as long as a small operator.
        cls._takes_keep = has_argument(cls.forward, "keep")
        cls._takes_poses = "poses" in inspect.signature(cls.forward).parameters

    @final
    def bind(
        self,
        *,
        n_in: int,
        n_out: int,
        d_out: int,
        d_in: int | None = None,
        window: Window | None = None,
    ) -> None:
        """Give the routing its sizes; the layer calls this once. `n_in` counts the children that
        one parent sees, `d_in` their components."""
        check_begun(self)
        if self._is_bound:
            raise TorchcapsError(
                f"this {type(self).__name__} belongs to a layer already; every layer needs "
                f"a routing of its own."
            )
        self.window = window
        sees = "d_in" in inspect.signature(self.create_parameters).parameters
        asked: dict[str, Any] = {"d_in": d_in} if sees and d_in is not None else {}
        self.create_parameters(n_in=n_in, n_out=n_out, d_out=d_out, **asked)
        # Last: a layer that is refused has not got it.
        self._is_bound = True

    @abstractmethod
    def create_parameters(self, *, n_in: int, n_out: int, d_out: int) -> None:
        """Create the parameters, if any, for a layer of this size. One with an argument `d_in` is
        told the components of a child too."""

    @abstractmethod
    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None = None,
        *,
        keep: Keep = "none",
        couple: Couple | None = None,
    ) -> Routed:
        """Call the op. `couple` is for the op too; a routing that knows nothing of it may leave it
        out, and is told so when somebody asks. One with an argument `poses` is given those of the
        children, [*b, i, d_in], as parents see them."""

    @final
    def check_bound(self, *, has_parameters: bool) -> None:
        """Refuse a call of a routing that lacks its parameters, for no layer told it its sizes."""
        if has_parameters and not self._is_bound:
            name = type(self).__name__
            raise TorchcapsError(
                f"this {name} has parameters, but none were made, for it belongs to no layer that "
                f"says how many capsules there are; give it to a layer, "
                f"DenseCapsules(routing={name}(…), …), or call its bind(n_in=…, n_out=…, d_out=…)."
            )

    def options(self) -> dict[str, Any]:
        """Give what the op is asked beside votes, activations and `keep`."""
        return {}

    def takes(self, vote_map: VoteMap) -> bool:
        """Say whether `fused` can do what `forward` does with these votes. The form in PyTorch
        answers for every backend: a kernel leaves to it what it lacks."""
        return has_form(self.backend, self.algorithm, vote_map, self.options())

    def fused(
        self, vote_map: VoteMap, *, keep: Keep = "none", couple: Couple | None = None
    ) -> Routed:
        """Do what `forward` does without a vote tensor, where an algorithm has such a form."""
        route = fused_form(self.backend, self.algorithm)
        asked = couple_for(route, couple) | self.options()
        return self.finished(route(vote_map, keep=keep, **asked))

    def finished(self, routed: Routed) -> Routed:
        """Give what the op gave as the module gives it."""
        return routed

    @final
    def fuses(self, vote_map: VoteMap) -> bool:
        """Say whether these votes are better not stored; a hook on the routing is to see them."""
        return not has_hooks(self) and is_fused(
            self.backend,
            self.algorithm,
            vote_map,
            self.options,
            takes=lambda: self.takes(vote_map),
            called=type(self).__name__,
        )

    @final
    def route(
        self,
        vote_map: VoteMap,
        activation: Tensor | None,
        *,
        keep: Keep = "none",
        couple: Couple | None = None,
    ) -> Routed:
        """Route from what stands between children and votes; `activation` [*b, i] as parents see
        it."""
        if self.fuses(vote_map):
            return self.fused(vote_map, keep=keep, couple=couple)
        asked = couple_for(self.forward, couple)
        if not self._takes_keep:
            raise TorchcapsError(
                f"{type(self).__name__}.forward takes no `keep`, by which a network says what to "
                f'record; write forward(self, votes, activation=None, *, keep="none").'
            )
        if self._takes_poses:
            asked["poses"] = seen_poses(vote_map)
        votes = materialise(vote_map)
        routed = self(votes, activation, keep=keep, **asked)
        return check_gave(type(self).__name__, routed, votes, keep)

    def step(
        self,
        votes: Tensor,
        activation: Tensor | None,
        parents: Capsules | None,
        *,
        couple: Couple | None = None,
    ) -> Step:
        """Take one iteration from the present parents (None: the first), for concurrent schedules.

        Only a routing whose whole state is its parents can offer it.
        """
        raise TorchcapsError(
            f"{type(self).__name__} keeps more than its parents from one iteration to the next, so "
            f"its layers cannot all route at the same time; use "
            f'schedule="sequential", or inverted routing.'
        )

    def fused_step(
        self,
        vote_map: VoteMap,
        parents: Capsules | None,
        *,
        keep: Keep = "none",
        couple: Couple | None = None,
    ) -> Step:
        """Do what `step` does without a vote tensor."""
        raise no_fused_form(type(self).__name__)


# Routings by the name that layers, models and the command line take.
ROUTINGS: dict[str, type[Routing]] = {}


def named(name: str) -> Callable[[type[R]], type[R]]:
    """Enter a routing of the library by its name."""

    def enter(routing: type[R]) -> type[R]:
        ROUTINGS[name] = routing
        return routing

    return enter


def couple_for(form: Callable[..., Any], couple: Couple | None) -> dict[str, Any]:
    """Give `couple` as an argument of a form, which is told where it does not take it."""
    if couple is None:
        return {}
    if not has_argument(form, "couple"):
        raise TorchcapsError(
            f"couple was given, but {form.__qualname__} does not take it; give it an argument "
            f"couple=None, a function to be called on the couplings of the last iteration."
        )
    return {"couple": couple}


def has_argument(form: Callable[..., Any], argument: str) -> bool:
    """Say whether a form has an argument of this name, or hands on whatever comes."""
    taken = inspect.signature(form).parameters
    return argument in taken or any(each.kind is each.VAR_KEYWORD for each in taken.values())


def check_begun(module: nn.Module) -> None:
    """Refuse a module whose class never called that of torch: it would fail much later, at the
    first look for its parameters."""
    if not hasattr(module, "_parameters"):
        raise TorchcapsError(
            f"{type(module).__name__}.__init__ must begin with super().__init__()."
        )


class OpRouting(Routing):
    """A routing of the library: one of its ops, and the parameters that the module owns for it."""

    # Whether `create_parameters` makes some.
    has_parameters: bool = True
    # Whether the op is given the activations of children.
    sees_activations: bool = False
    # What the op is told of what the module has by the same names.
    told: tuple[str, ...] = ()

    def options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.told}

    def op(self, votes: Tensor, activation: Tensor | None, **asked: Any) -> Routed:
        """Call the op, which is asked what `options` says."""
        given = (votes, activation) if self.sees_activations else (votes,)
        return PLAIN[self.algorithm](*given, **asked)

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None = None,
        *,
        keep: Keep = "none",
        couple: Couple | None = None,
    ) -> Routed:
        self.check_bound(has_parameters=self.has_parameters)
        return self.finished(self.op(votes, activation, keep=keep, couple=couple, **self.options()))
