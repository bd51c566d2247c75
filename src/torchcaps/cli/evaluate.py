"""`torchcaps eval`: count what a trained network gets right."""

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.arguments import (
    AsJson,
    Data,
    ExplainedCommand,
    Imports,
    Network,
    Root,
    levels,
    measurement_names,
)
from torchcaps.cli.ending import show_found
from torchcaps.cli.listed import command


@command(80, "eval", cls=ExplainedCommand)
def evaluate(
    network: Network,
    data: Data = None,
    root: Root = None,
    split: Annotated[
        str,
        typer.Option(help="test, validation (what the run held out: choose networks by it), train"),
    ] = "test",
    predictions: Annotated[
        Path | None, typer.Option(help="File for what is said of each image: .csv or .jsonl.")
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="Folder for pictures of a paper, and their numbers: .svg and .pdf."),
    ] = None,
    quantise: Annotated[
        str | None,
        typer.Option(help="Levels of a grid for couplings: 11, or 11,6 for layers from below."),
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            help="What else to measure, repeatable or with commas: activity,keys,robustness"
        ),
    ] = None,
    as_json: AsJson = False,
    own_code: Imports = None,
) -> None:
    """Count what a trained network gets right.

    Prints accuracy with its interval, the loss, and the classes one by one. The test images are
    for the end: choose between networks by --split validation. --quantise makes the parents anew
    from couplings on a grid; --measure takes names out of docs/measures.md.
    """
    from torchcaps import layers, tasks

    layers.keep_memory()
    found = tasks.evaluate_file(
        network,
        data=data,
        root=root,
        split=split,
        predictions=predictions,
        figures=figures,
        levels=None if quantise is None else levels("--quantise", quantise),
        measurements=measurement_names(measure),
    )
    show_found(found, as_json)
