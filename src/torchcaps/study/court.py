"""The application that judges published claims, torchcaps-claims, where it is installed."""

from functools import cache
from typing import Any

from torchcaps.errors import TorchcapsError


@cache
def court(group: str = "torchcaps.study") -> Any:
    """Load its module, or what it enters in another group; None where it is not installed."""
    from importlib.metadata import entry_points

    return next((point.load() for point in entry_points(group=group)), None)


def needed_court(for_what: str) -> Any:
    """Return its module, or say in one sentence what was asked for and needs it."""
    if (found := court()) is None:
        raise TorchcapsError(
            f"{for_what} needs the claims of the papers, an application of its own in the "
            f"repository of torchcaps: pip install ./claims in a clone; a study of your own is a "
            f"file, my.toml, and needs none of it."
        )
    return found
