"""How a command ends that failed: one sentence and an exit code, or a traceback to report."""

import re
import sys
import traceback
from typing import NamedTuple

from torchcaps._extras import MissingExtra
from torchcaps.errors import Interrupted, TorchcapsError, is_out_of_memory

# Longer than any path that someone types: a number of 5,000 digits is not said to its end.
LONG_WORD, BEGINNING = re.compile(r"\S{500,}"), 100


class Failure(NamedTuple):
    code: int
    sentence: str


def failure_of(error: Exception) -> Failure | None:
    """Say how a command ends that raised an error; None for a fault of torchcaps."""
    sentence = LONG_WORD.sub(lambda word: f"{word[0][:BEGINNING]}…", str(error))
    if isinstance(error, TorchcapsError):
        return Failure(130 if isinstance(error, Interrupted) else 2, sentence)
    if isinstance(error, OSError):
        return Failure(2, f"{sentence}; is the path right, may it be written, is there room?")
    if isinstance(error, MissingExtra):
        return Failure(2, str(error))
    if is_out_of_memory(error):
        reason = (str(error) or "no more is known").splitlines()[0][:150]
        return Failure(
            2,
            f"memory ran out ({reason}); take a smaller --batch-size or network: "
            f"torchcaps estimate says what a step takes.",
        )
    # Lightning imports torchvision where it is installed, by torchmetrics.
    if _is_raised_inside(error, "torchvision"):
        return Failure(
            2,
            f"torchvision is installed but cannot be imported "
            f"({str(error).splitlines()[0]}); it was built for another torch: install the one that "
            f"fits, or pip uninstall torchvision, which torchcaps does not need.",
        )
    if "torchcaps.train.own_code" not in sys.modules:
        return None
    from torchcaps.train.own_code import fault_of_own_code

    fault = fault_of_own_code(error)
    return None if fault is None else Failure(2, fault)


def _is_raised_inside(error: Exception, package: str) -> bool:
    """Say whether it was raised by code of a package, or by what that called."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals.get("__name__", "").split(".")[0] == package for frame, _ in frames)
