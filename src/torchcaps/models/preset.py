"""What a name stands for: the class of all networks with a name, and what is known of each name."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from types import UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin

from torch import Tensor, nn

from torchcaps.layers import ROUTINGS
from torchcaps.layers.routing.table import all_routing_options
from torchcaps.types import Couple, Intervene, Keep, Output

# Images as (channels, height, width): of MNIST, and moved on a larger canvas; two overlaid; CIFAR.
SMALL, WIDE, OVERLAID, CIFAR = (1, 28, 28), (1, 40, 40), (1, 36, 36), (3, 32, 32)
Maker = TypeVar("Maker", bound=Callable[..., nn.Module])
Net = TypeVar("Net", bound=nn.Module)


class NamedNetwork(nn.Module):
    """A network of `create_model`, which holds in `config` by what name and options it was made."""

    config: Any
    # Whether any of its layers is routed.
    _routes: ClassVar[bool] = False
    # `files.refit.reset_classes`, which makes networks by name, so that no network can import it.
    _refit: ClassVar[Callable[[Any, int], tuple[str, ...]]]

    if TYPE_CHECKING:

        def __call__(
            self,
            image: Tensor,
            target: Tensor | None = None,
            *,
            keep: Keep = "none",
            couple: Couple | Mapping[str, Couple] | None = None,
            intervene: Mapping[str, Intervene] | None = None,
            iterations: int | None = None,
        ) -> Output: ...

    def reset_classes(self, n_classes: int) -> tuple[str, ...]:
        """Score other classes, in place: what fits is kept, the rest begins anew.

        Returns the names of the tensors that were made new, drawn from torch's random numbers. They
        are new parameters: make the optimiser afterwards.

        Arguments:
            n_classes: how many classes there shall be.

        >>> model = tc.load("pets")
        >>> model.reset_classes(7)
        ('layers.classes.weight',)
        """
        return type(self)._refit(self, n_classes)


@dataclass(frozen=True)
class Preset:
    """A named network: its maker, the image and classes it has in its paper, and where that is."""

    build: Callable[..., nn.Module]
    image: tuple[int, int, int]
    n_classes: int
    source: str
    # Options that the routing may have no use for, but another part of the network has.
    shared: frozenset[str] = frozenset()
    # The network that this one would be by EM routing, with other numbers; none: only its routing.
    by_em: str = ""
    # Registered by a user: nothing is known of it, but what its signature says.
    is_own: bool = False

    @cached_property
    def _signature(self) -> inspect.Signature:
        """Read once: a page of all claims asks for it tens of thousands of times."""
        return inspect.signature(self.build)

    @property
    def options(self) -> dict[str, Any]:
        """What may be set, with its default."""
        return dict(self._defaults)

    @property
    def fixed_routing(self) -> str:
        """The routing that is part of what it is; none where it is told one, or has none."""
        return str(getattr(getattr(self.build, "func", self.build), "fixed_routing", ""))

    def hands_on(self, option: str) -> bool:
        """Say whether an option that is not listed is one of its routing, or of one it may be
        told."""
        known = routing_options(self.fixed_routing) if self.fixed_routing else all_routing_options()
        takes_all = any(p.kind is p.VAR_KEYWORD for p in self._signature.parameters.values())
        # A class_squash is the squash of the routing, by another name.
        is_named = f"class_{option}" in self._defaults
        return takes_all and not self.is_own and option in known and not is_named

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        parameters = self._signature.parameters.values()
        return {
            p.name: p.default
            for p in parameters
            # The two that every network has may have defaults in one of a user's own.
            if p.default is not inspect.Parameter.empty and p.name not in ("image", "n_classes")
        }

    def words(self, option: str) -> tuple[str, ...]:
        """Say between which words an option chooses; none where it is no such choice."""
        parameter = self._signature.parameters.get(option)
        annotation = None if parameter is None else parameter.annotation
        kinds = (
            get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
        )
        return tuple(
            word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)
        )

    @property
    def routes(self) -> bool:
        """Whether any of its layers is routed."""
        made = self.build if isinstance(self.build, type) else self._signature.return_annotation
        return isinstance(made, type) and issubclass(made, NamedNetwork) and made._routes

    @property
    def routings(self) -> list[str]:
        """What its `routing` may be: all that give the activations by which its classes score.
        Empty where the routing is what the network is."""
        if "routing" not in self.options:
            return []
        names = (name for name, each in sorted(ROUTINGS.items()) if each.gives_activations)
        return [name for name in names if not (name == "em" and self.by_em)]


# Every network by its name: each is listed where it is defined.
MODELS: dict[str, Preset] = {}


def listed(
    name: str,
    image: tuple[int, int, int],
    n_classes: int,
    source: str,
    *,
    shared: frozenset[str] = frozenset(),
    by_em: str = "",
    **options: Any,
) -> Callable[[Maker], Maker]:
    """List in `MODELS` the network that a function makes, or makes with other defaults: `options`.
    The rest is that of `Preset`."""

    def enter(build: Maker) -> Maker:
        maker = partial(build, **options) if options else build
        MODELS[name] = Preset(maker, image, n_classes, source, shared, by_em)
        return build

    return enter


def routing_options(routing: str) -> frozenset[str]:
    """Give what this routing can be told."""
    known = frozenset(inspect.signature(ROUTINGS[routing]).parameters)
    return known | {"bias"} if routing == "em" else known


def hands_on(names: str, *, routing: str = "") -> Callable[[Maker], Maker]:
    """List options that a network hands on to its routing, in order, their names with blanks
    between, each with the default that the routing has, or that the function has itself.

    The function takes them as `**of_routing`, with all else that somebody tells the routing: an
    option that a routing gets needs no word here. `routing` is that of a network whose routing is
    part of what it is; of others its `routing` by itself, and where that has no such option the
    first that has.
    """

    def enter(build: Maker) -> Maker:
        signature = inspect.signature(build)
        own = dict(signature.parameters)
        found = [routing] if routing else [own["routing"].default, *ROUTINGS]
        known = [inspect.signature(ROUTINGS[each]).parameters for each in found]
        block = {
            name: own[name] if name in own else next(k[name] for k in known if name in k)
            for name in (names if routing else f"routing {names}").split()
        }
        # Where the first of them stands among those of the function, all do.
        first = next(at for at, name in enumerate(own) if name in block)
        order = dict.fromkeys([*list(own)[:first], *block, *own])
        defaults = {name: each.default for name, each in block.items() if name not in own}

        @wraps(build)
        def make(**chosen: Any) -> nn.Module:
            return build(**defaults | chosen)

        parameters = [(own | block)[name] for name in order]
        vars(make).update(
            __signature__=signature.replace(parameters=parameters), fixed_routing=routing
        )
        return cast(Maker, make)

    return enter
