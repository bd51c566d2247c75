"""The routing under test: what its owner declared of it, and votes to try it on."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from torchcaps.types import Keep, Routed

# Odd sizes, one child, one parent, both; (i, j, d).
SIZES = ((5, 3, 3), (1, 3, 2), (4, 1, 3), (1, 1, 1), (7, 2, 4))
LEADING: tuple[tuple[int, ...], ...] = ((), (1,), (3,), (2, 1, 3))


class RoutingLike(Protocol):
    def __call__(self, votes: Tensor, /, *, keep: Keep) -> Routed: ...


class RoutingContractError(AssertionError):
    """A routing broke a law; `clause` is the law's name."""

    def __init__(self, clause: str, expected: str, came: str, cause: str) -> None:
        super().__init__(f"{clause}: expected {expected}, but {came}; likely cause: {cause}.")
        self.clause = clause


class Subject(NamedTuple):
    """The routing under test, with what its owner declared of it."""

    routing: RoutingLike
    reference: Callable[[Tensor], tuple[Tensor, ...]] | None
    first_iteration: Callable[[Tensor], Tensor] | None
    normalised_over: Literal["parents", "children", "none"]
    leftover: bool
    sizes: tuple[tuple[int, int, int], ...]
    device: torch.device
    tolerance: float

    def beside(self, form: Any, votes: Tensor) -> dict[str, Tensor]:
        """Give the poses of the children for whoever asks for them: the mean of a child's votes,
        which changes its place with the child, and not with the parents."""
        return {"poses": votes.mean(-2)} if "poses" in _taken(form) else {}

    def route(self, votes: Tensor, keep: Keep = "last") -> Routed:
        routing: Any = self.routing
        try:
            routed: Routed = routing(votes, keep=keep, **self.beside(routing, votes))
        except Exception as error:
            raise RoutingContractError(
                "call",
                f"votes {list(votes.shape)} in {votes.dtype} and keep={keep!r} to be routed",
                f"{type(error).__name__} was raised ({error})",
                _why_it_cannot_be_called(self.routing)
                or "a fixed number of batch axes, parameters of one size (pass sizes=), or an "
                "operation without this dtype",
            ) from error
        if not _holds_tensors(routed):
            raise RoutingContractError(
                "call",
                "a Routed of Capsules and Steps that hold tensors",
                f"{type(routed).__name__} came, or something else in it",
                "the parents alone were returned; return Routed(Capsules(pose, activation), steps)",
            )
        return routed

    def coupling(self, votes: Tensor) -> Tensor:
        return self.route(votes).steps[-1].coupling

    def votes(self, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        generator = torch.Generator().manual_seed(len(shape) + sum(shape))
        votes = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return votes.to(self.device, dtype)

    def cases(self, leading: Sequence[tuple[int, ...]] = LEADING) -> Iterator[Tensor]:
        for lead in leading:
            for size in self.sizes:
                yield self.votes(*lead, *size)

    def few_cases(self) -> Iterator[Tensor]:
        """List every size once and every leading shape once: a reference may be slow."""
        yield from self.cases([()])
        for lead in LEADING[1:]:
            yield self.votes(*lead, *self.sizes[0])


def _why_it_cannot_be_called(routing: Any) -> str | None:
    """Give what its arguments lack, as far as they can be read."""
    if isinstance(routing, type):
        return f"the class was given; call it: {routing.__name__}()"
    if not callable(routing):
        return f"{type(routing).__name__} is no function; give one, as ops.dynamic_routing"
    taken = _taken(routing)
    if not taken:
        return None
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for each in list(taken.values())[1:]:
        if (
            each.name not in ("keep", "poses")
            and each.default is each.empty
            and each.kind not in several
        ):
            is_known = each.name == "activation"
            how = "write activation=None" if is_known else f"give {each.name} a default"
            return f"it is called with votes and keep alone; {how}"
    if "keep" not in taken and all(each.kind is not each.VAR_KEYWORD for each in taken.values()):
        return 'keep is missing; write (votes, *, keep="none")'
    return None


def _taken(form: Any) -> Mapping[str, inspect.Parameter]:
    """Give the arguments of a routing, as far as they can be read."""
    try:
        return inspect.signature(getattr(form, "forward", form)).parameters
    except (TypeError, ValueError):
        return {}


def _holds_tensors(routed: object) -> bool:
    return (
        isinstance(routed, Routed)
        and isinstance(routed.parents.pose, Tensor)
        and all(isinstance(step.coupling, Tensor) for step in routed.steps)
    )
