"""Routings by name."""

import copy
import inspect
from typing import Any

from torchcaps._checks import check_choice
from torchcaps._lazy import load_modules
from torchcaps.errors import TorchcapsError, nearest, short
from torchcaps.layers.routing.base import ROUTINGS, Routing

load_modules("torchcaps.layers.routing")


def register_routing(name: str, routing: type[Routing]) -> None:
    """Give a routing of one's own a name that layers, networks and the command line take.

    It holds in this process alone: a saved network or a run says the name, and who opens it
    registers the routing again (on the command line by `--import` of the file that does).

    Arguments:
        name: what it shall be called, a word such as "anneal".
        routing: a class derived from `layers.Routing`. Everything its constructor takes has a
            default; arguments that networks have too, such as `iterations`, are passed on to it.

    >>> tc.register_routing("anneal", Anneal)
    >>> tc.create_model("capsnet", routing="anneal")
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise TorchcapsError(
            f'a routing needs a name of letters, digits and _, for example "anneal", but got '
            f"{short(name)}."
        )
    if not (isinstance(routing, type) and issubclass(routing, Routing)):
        made = isinstance(routing, Routing)
        found = (
            f"an object; give the class {type(routing).__name__} itself"
            if made
            else f"{short(routing)}"
        )
        raise TorchcapsError(
            f"register_routing takes a class derived from torchcaps.layers.Routing, but got "
            f"{found}."
        )
    known = ROUTINGS.get(name)
    if known is not None and import_path(known) != import_path(routing):
        raise TorchcapsError(
            f"the name {short(name)} belongs to {import_path(known)}; choose another for "
            f"{import_path(routing)}."
        )
    if abstract := sorted(getattr(routing, "__abstractmethods__", ())):
        raise TorchcapsError(
            f"{routing.__name__} lacks {' and '.join(abstract)}; a routing defines "
            f"create_parameters and forward."
        )
    for each in inspect.signature(routing).parameters.values():
        named = each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        if named and each.default is each.empty:
            raise TorchcapsError(
                f"every argument of {routing.__name__} needs a default, because a network makes it "
                f"by its name alone; {each.name} has none."
            )
    ROUTINGS[name] = routing


def import_path(kind: type) -> str:
    """Say where a class is to be imported from: "my.Anneal"."""
    return f"{kind.__module__}.{kind.__qualname__}"


def as_routing(routing: str | Routing) -> Routing:
    """Make a routing by its name, with its defaults; one that is given stays as it is."""
    if isinstance(routing, type):
        raise TorchcapsError(
            f"a layer takes a routing or its name, but got the class {routing.__name__}; call it: "
            f"{routing.__name__}()."
        )
    return routing if isinstance(routing, Routing) else make_routing(routing)


def make_routing(name: str | Routing, **options: Any) -> Routing:
    """Make a routing by its name with those of the options that it knows.

    So a network can offer every routing: uniform routing, say, has no use for iterations. What no
    routing knows is refused. A routing that is given instead of a name has its options already; it
    is copied, so that each of several layers gets its own.

    Arguments:
        name: a name of `ROUTINGS`, or a routing object.
        options: those of any routing; the named one gets those that it has.

    >>> make_routing("uniform", iterations=5, bias=True)
    UniformRouting()
    """
    if isinstance(name, Routing):
        return copy.deepcopy(name)
    check_choice("routing", name, ROUTINGS)
    all_taken = all_routing_options()
    for option in options:
        if option not in all_taken:
            raise TorchcapsError(
                f"no routing has an option {short(option)}; {nearest(option, sorted(all_taken))}."
            )
    taken = inspect.signature(ROUTINGS[name]).parameters
    return ROUTINGS[name](**{key: value for key, value in options.items() if key in taken})


def all_routing_options() -> frozenset[str]:
    """Give what some routing can be told, if not every one."""
    signatures = map(inspect.signature, ROUTINGS.values())
    return frozenset(option for signature in signatures for option in signature.parameters)


def no_use(name: str, option: str, value: object) -> TorchcapsError:
    """Say what is said of an option that other routings have, and the named one has not."""
    return TorchcapsError(f"{name} routing has no use for {option}={short(value)}; leave it out.")
