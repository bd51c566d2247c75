"""Packages that not everybody has: where one is missing, a sentence names the extra with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec


class MissingExtra(ModuleNotFoundError):
    """Its text names the package that is missing, and the extra."""


@contextmanager
def needing(package: str, *, room: str, extra: str) -> Iterator[None]:
    """Stand around the imports of a room that needs the package."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise MissingExtra(
            f"torchcaps.{room} needs {package}, which comes with the extra [{extra}]: pip install "
            f"'torchcaps[{extra}]'.",
            name=package,
        ) from None


def check_installed(package: str, *, room: str, extra: str) -> None:
    """Say it at once of a room that imports the package later."""
    with needing(package, room=room, extra=extra):
        if find_spec(package) is None:
            raise ModuleNotFoundError(name=package)
