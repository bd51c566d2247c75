"""The application: every command, in the order in which --help lists them."""

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from torchcaps._lazy import load_modules
from torchcaps._printable import printable
from torchcaps.cli.listed import COMMANDS

# Letters of what was typed that an error of Typer repeats.
MOST_TOLD = 300


def _told_shortly(read: Callable[..., Any]) -> Callable[..., Any]:
    """Typer keeps the class of its errors to itself, and repeats whole what it does not know."""

    def told(*given: Any) -> Any:
        try:
            return read(*given)
        except Exception as error:
            if isinstance(said := vars(error).get("message"), str):
                vars(error)["message"] = printable(said[:MOST_TOLD]) + "…" * (len(said) > MOST_TOLD)
            raise

    return told


class _Commands(TyperGroup):
    parse_args = _told_shortly(TyperGroup.parse_args)
    invoke = _told_shortly(TyperGroup.invoke)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
load_modules("torchcaps.cli")
for _, _add_to in sorted(COMMANDS, key=lambda each: each[0]):
    _add_to(app)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        import torchcaps

        print(f"torchcaps {torchcaps.__version__}, torch {version('torch')}")
        raise typer.Exit


@app.callback()
def every_command(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print it and end."),
    ] = False,
) -> None:
    """Capsule networks: build, train, dissect, judge."""
