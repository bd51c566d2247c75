"""Routings by name."""

import inspect
from typing import Any

from torchcaps.errors import TorchcapsError, nearest
from torchcaps.layers.routing.base import Routing
from torchcaps.layers.routing.distance import DistanceRouting
from torchcaps.layers.routing.dynamic import DynamicRouting
from torchcaps.layers.routing.em import EMRouting
from torchcaps.layers.routing.inverted import InvertedRouting
from torchcaps.layers.routing.self_attention import SelfAttentionRouting
from torchcaps.layers.routing.uniform import UniformRouting

__all__ = ["ROUTINGS", "as_routing", "make_routing"]


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
