"""Whether two measurements may be merged: of one kind, and made with the same settings."""

from collections.abc import Mapping
from typing import Any

from torchcaps.errors import TorchcapsError, short

__all__ = ["check_alike"]


def check_alike(one: object, other: object) -> None:
    """Refuse to merge measurements whose numbers mean different things. Functions and networks are
    not compared: each process has its own."""
    kind = type(one).__name__
    if type(other) is not type(one):
        raise TorchcapsError(
            f"a {kind} takes over what another {kind} has seen, but got {short(other)}."
        )
    for name, value in vars(one).items():
        if name.startswith("_") or callable(value):
            continue
        its = getattr(other, name)
        if _settings(value) != _settings(its):
            raise TorchcapsError(
                f"a {kind} whose {name} is {short(value)} cannot take over what one has seen whose "
                f"{name} is {short(its)}; make both alike."
            )


def _settings(value: Any) -> Any:
    # Of functions by name the names.
    return list(value) if isinstance(value, Mapping) else value
