"""The one error a user sees: what was expected, what came, and how to mend it."""

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

MANY, VERY_MANY = 12, 100
NOTHING: Mapping[str, str] = MappingProxyType({})

MOST_WORDS = 100
# How alike two names are, from 0 to 1: a guess is worth making, a name is worth listing among many.
GUESSED, LISTED = 0.6, 0.4

__all__ = ["Diverged", "Emptied", "Interrupted", "TorchcapsError", "nearest", "short"]


class TorchcapsError(ValueError):
    """Bad input, explained. The command line prints its text alone; nothing else is caught."""


class Interrupted(TorchcapsError):
    """Stopped by the user; says how to go on."""


class Diverged(TorchcapsError):
    """Training came to numbers that are not finite: a result of its recipe, and no accident."""


class Emptied(TorchcapsError):
    """Pruning came to a layer that would be left without a weight: a result of its recipe, too."""


def is_out_of_memory(error: Exception) -> bool:
    """Know torch's own kind on a GPU, a RuntimeError on a CPU."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "can't allocate memory" in str(error)
    )


def short(value: object) -> str:
    """Say what came, as a sentence quotes it: not with thousands of digits or brackets.

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
    """Give the end of a sentence about an unknown name: the nearest known one, if any is near, then
    all of them; of very many the nearest few. `meant` has names from elsewhere that are spelt
    otherwise than ours.

    Arguments:
        name: what came.
        known: all names that there are.
        meant: names from elsewhere, each with ours.

    >>> nearest("capsnt", ["capsnet", "resnet18"])
    "did you mean 'capsnet'? known: capsnet, resnet18"
    >>> nearest("cuda", ["fused", "native"])
    'known: fused, native'
    """
    known, name = sorted(known), str(name)
    guess = meant.get(name)
    if guess not in known:
        guess = _guess(name, known)
    if guess is None:
        return f"known: {', '.join(known if len(known) <= VERY_MANY else [*known[:MANY], '…'])}"
    others = [each for each in known if each != guess]
    few = difflib.get_close_matches(name, others, n=4, cutoff=LISTED) or others[:3]
    listed = known if len(known) <= MANY else [*few, "…"]
    return f"did you mean {guess!r}? known: {', '.join(listed)}"


def _guess(name: str, known: list[str]) -> str | None:
    """The known name that is this one in other capitals, is most like it, or begins with it."""
    same = [each for each in known if each.casefold() == name.casefold()]
    begun = [each for each in known if len(name) > 1 and each.startswith(name)]
    close = difflib.get_close_matches(name, known, n=1, cutoff=GUESSED)
    return next(iter([*same, *close, *begun]), None)
