"""The application: every command, in the order in which --help lists them."""

from typing import Annotated

import typer

from torchcaps._lazy import load_modules
from torchcaps.cli.listed import COMMANDS

app = typer.Typer(
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
