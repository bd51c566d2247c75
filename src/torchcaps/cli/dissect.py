"""`torchcaps dissect`: look inside trained networks."""

import json
from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.arguments import Data, Imports, Root, measurement_names
from torchcaps.cli.listed import command


@command(60)
def dissect(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, saved networks, or zoo:NAME.")],
    out: Annotated[Path, typer.Option(help="The page to write, ending in .html.")] = Path(
        "report.html"
    ),
    data: Data = None,
    root: Root = None,
    images: Annotated[
        int, typer.Option(min=2, help="How many held-out images, every class with its share.")
    ] = 1000,
    example: Annotated[int, typer.Option(help="Number of the test image whose tree is drawn.")] = 0,
    measure: Annotated[
        list[str] | None,
        typer.Option(help="What else to measure, repeatable or with commas: keys,polarisation"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the numbers instead of the path.")
    ] = False,
    own_code: Imports = None,
) -> None:
    """Look inside trained networks, write a page.

    Prints the path of the page, or with --json every number on it.
    """
    from torchcaps import tasks
    from torchcaps.tasks.dissect import page_at

    page_at(out)  # before minutes of measuring
    found = tasks.dissect_files(
        runs,
        data=data,
        root=root,
        images=images,
        example=example,
        measurements=measurement_names(measure),
    )
    tasks.write_report(found, out)
    if as_json:
        print(json.dumps({each.label: each.numbers() for each in found}))
    else:
        print(out)
