"""The application: every command, in the order in which --help lists them."""

from typing import Annotated

import typer

from torchcaps.cli import data, study
from torchcaps.cli.check import check
from torchcaps.cli.compare import compare
from torchcaps.cli.demo import demo
from torchcaps.cli.dictionary import dictionary
from torchcaps.cli.dissect import dissect
from torchcaps.cli.doctor import doctor
from torchcaps.cli.estimate import estimate
from torchcaps.cli.evaluate import evaluate
from torchcaps.cli.fields import FieldsCommand
from torchcaps.cli.lr import lr
from torchcaps.cli.measuring import MeasureCommand
from torchcaps.cli.models import models
from torchcaps.cli.perturb import perturb
from torchcaps.cli.predict import predict
from torchcaps.cli.prune import prune
from torchcaps.cli.shrink import shrink
from torchcaps.cli.train import train

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(demo)
app.command()(models)
app.command(cls=FieldsCommand)(train)
app.command(cls=FieldsCommand)(lr)
app.command()(compare)
app.command()(dissect)
app.command()(dictionary)
app.command("eval", cls=MeasureCommand)(evaluate)
app.command()(predict)
app.command()(prune)
app.command()(shrink)
app.command()(perturb)
app.command()(doctor)
app.command()(check)
app.command()(estimate)
app.add_typer(data.app, name="data")
app.add_typer(study.app, name="study")


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
