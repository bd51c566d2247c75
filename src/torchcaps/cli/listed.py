"""Commands, each entered where it is defined."""

from collections.abc import Callable
from typing import Any, TypeVar

import typer

Does = TypeVar("Does", bound=Callable[..., None])

# Where it stands in --help, and how it is added to the application.
COMMANDS: list[tuple[int, Callable[[typer.Typer], object]]] = []


def command(place: int, name: str | None = None, **how: Any) -> Callable[[Does], Does]:
    """Enter a command, at a place in --help; without a name it is called as its function."""

    def enter(does: Does) -> Does:
        COMMANDS.append((place, lambda app: app.command(name, **how)(does)))
        return does

    return enter


def add_group(place: int, group: typer.Typer, name: str) -> None:
    COMMANDS.append((place, lambda app: app.add_typer(group, name=name)))
