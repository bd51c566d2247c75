"""What somebody does to a network while it runs: to the couplings of a layer, or to the capsules
that leave it."""

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

import torch

from torchcaps.errors import TorchcapsError, nearest
from torchcaps.ops.checks import has_values
from torchcaps.types import Capsules, Couple, Intervene

P = ParamSpec("P")
R = TypeVar("R")
NOTHING_DONE: Mapping[str, Any] = MappingProxyType({})


def by_layer(
    couple: Couple | Mapping[str, Couple] | None, layers: Sequence[str]
) -> dict[str, Couple]:
    """Give `couple` of a network as one function for each layer that it is for."""
    if callable(couple):
        return dict.fromkeys(layers, couple)
    return named("couple", couple, layers)


def named(
    argument: str, functions: Mapping[str, Callable[[Any], Any]] | None, layers: Sequence[str]
) -> dict[str, Callable[[Any], Any]]:
    """Give functions by the names of layers, which must exist."""
    if functions is None:
        return {}
    if not isinstance(functions, dict | Mapping):
        raise TorchcapsError(
            f"{argument} must name layers and their functions, "
            f"{argument}={{{layers[-1]!r}: function}}, but came as a {type(functions).__name__}."
        )
    for name, function in functions.items():
        if name not in layers:
            raise TorchcapsError(
                f"{argument} names a layer {name!r} that this network does not have; "
                f"{nearest(str(name), list(layers))}."
            )
        if not callable(function):
            raise TorchcapsError(
                f"{argument} needs a function for layer {name!r}, but got a "
                f"{type(function).__name__}."
            )
    return dict(functions)


def leaving(name: str, capsules: Capsules, intervene: Mapping[str, Intervene]) -> Capsules:
    """Give the capsules that leave a layer, as the function for it makes them."""
    if name not in intervene:
        return capsules
    before = _versions(capsules)
    made = intervene[name](capsules)
    if before != _versions(capsules):
        raise TorchcapsError(
            f"the function that intervenes in layer {name!r} must leave the capsules that it is "
            f"given as they are, for a trace keeps them, but it wrote into them; write "
            f"capsules._replace(pose=0.5 * capsules.pose)."
        )
    if not isinstance(made, Capsules):
        raise TorchcapsError(
            f"the function that intervenes in layer {name!r} must return Capsules, but returned a "
            f"{type(made).__name__}; return capsules._replace(pose=..., activation=...)."
        )
    expected = [None if x is None else list(x.shape) for x in capsules]
    came = [None if x is None else list(x.shape) for x in made]
    if expected != came:
        raise TorchcapsError(
            f"the function that intervenes in layer {name!r} must return poses {expected[0]} and "
            f"activations {expected[1]}, as many as it was given, but returned {came[0]} and "
            f"{came[1]}; to silence capsules multiply them by zero."
        )
    for what, value in zip(("poses", "activations"), made, strict=True):
        if value is not None and has_values(value) and not bool(value.isfinite().all()):
            raise TorchcapsError(
                f"the function that intervenes in layer {name!r} returned {what} that are NaN or "
                f"infinite; do not divide by what may be zero."
            )
    return made


def _versions(capsules: Capsules) -> list[int]:
    """Say how often each tensor was written into; nothing where nobody counts."""
    if torch.compiler.is_compiling():
        return []
    return [x._version for x in capsules if x is not None and not x.is_inference()]


def without_capsules(forward: Callable[P, R]) -> Callable[P, R]:
    """Give the forward of a network that has nothing inside to change, and says so when it is
    asked."""

    @functools.wraps(forward)
    def explained(*args: P.args, **named: P.kwargs) -> R:
        for change in ("couple", "intervene"):
            if named.pop(change, None) is not None:
                raise TorchcapsError(
                    f"{type(args[0]).__name__} has no layer of capsules, so {change} finds nothing "
                    f"to change in it; leave {change} out, or take a capsule network."
                )
        return forward(*args, **named)

    return explained
