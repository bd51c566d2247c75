"""The one error a user sees: what was expected, what came, and how to mend it."""

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

MANY, VERY_MANY = 12, 100
NOTHING: Mapping[str, str] = MappingProxyType({})

MOST_WORDS = 100

__all__ = ["Diverged", "Interrupted", "TorchcapsError", "nearest", "short"]


class TorchcapsError(ValueError):
    """Bad input, explained. The command line prints its text alone; nothing else is caught."""


class Interrupted(TorchcapsError):
    """Stopped by the user; says how to go on."""


class Diverged(TorchcapsError):
    """Training came to numbers that are not finite: a result of its recipe, and no accident."""


def short(value: object) -> str:
    """What came, as a sentence quotes it: not with thousands of digits or brackets.

    Arguments:
        value: what came, of any type.

    >>> short([1, 2])
    '[1, 2]'
    """
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply"
    return text if len(text) <= MOST_WORDS else f"{text[:MOST_WORDS]}…"


def nearest(name: str, known: Iterable[str], *, meant: Mapping[str, str] = NOTHING) -> str:
    """The end of a sentence about an unknown name: the nearest known one, then all of them; of very
    many the nearest few. `meant` has names from elsewhere that are spelt otherwise than ours.

    Arguments:
        name: what came.
        known: all names that there are.
        meant: names from elsewhere, each with ours.

    >>> nearest("capsnt", ["capsnet", "resnet18"])
    "did you mean 'capsnet'? known: capsnet, resnet18"
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=5, cutoff=0.4)
    if meant.get(name) in known:
        close = [meant[name], *(each for each in close if each != meant[name])]
    if not close:
        return f"known: {', '.join(known if len(known) <= VERY_MANY else [*known[:MANY], '…'])}"
    few = close[1:] or [each for each in known if each not in close][:3]
    others = known if len(known) <= MANY else [*few, "…"]
    return f"did you mean {close[0]!r}? known: {', '.join(others)}"
