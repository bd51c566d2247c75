"""Arguments that a function does not take, explained as bad values are."""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from torchcaps.errors import TorchcapsError, nearest

P = ParamSpec("P")
R = TypeVar("R")


def explains_names(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which says what was meant where it is given an argument that it lacks."""
    taken = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def explained(*args: P.args, **named: P.kwargs) -> R:
        for name in named:
            if name not in taken:
                raise TorchcapsError(
                    f"{function.__name__} takes no {name}; {nearest(name, taken)}."
                )
        return function(*args, **named)

    return explained
