"""Names that a function does not take or a file does not hold, explained as bad values are."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from torchcaps._printable import printable
from torchcaps.errors import TorchcapsError, nearest

if TYPE_CHECKING:
    from pydantic import ValidationError

# Of the faults that one sentence lists.
MANY_FAULTS = 4

P = ParamSpec("P")
R = TypeVar("R")


def explains_names(function: Callable[P, R]) -> Callable[P, R]:
    """Give the function, which says what was meant where it is given an argument that it lacks."""
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


def in_words(error: "ValidationError") -> str:
    """Say what is wrong with each field of a document, the first of many."""
    faults = []
    for fault in error.errors():
        # A damaged name can be as long as the file.
        where = ".".join(printable(str(part)[:40], keep="") for part in fault["loc"])
        what = fault["msg"].removeprefix("Value error, ")
        faults.append(f"{where}: {what[0].lower()}{what[1:]}" if where else what)
    return joined(faults)


def joined(faults: Sequence[str]) -> str:
    """List faults in one sentence, of very many the first."""
    more = [f"and {len(faults) - MANY_FAULTS} more"] if len(faults) > MANY_FAULTS else []
    return "; ".join([*faults[:MANY_FAULTS], *more])
