"""`torchcaps dictionary`: images by the parse tree that they share."""

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.arguments import AsJson, Data, Imports, Network, Root
from torchcaps.cli.arguments import levels as levels_of
from torchcaps.cli.ending import show_found
from torchcaps.cli.listed import command


@command(70)
def dictionary(
    network: Network,
    levels: Annotated[
        str | None,
        typer.Option(
            help="Levels for couplings: 11, or 11,6 for layers from below; without it the fewest "
            "at which accuracy holds on validation images."
        ),
    ] = None,
    each: Annotated[
        bool, typer.Option("--each", help="Choose a number for each routed layer.")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the commonest trees' images: .svg, .pdf or .png.")
    ] = None,
    data: Data = None,
    root: Root = None,
    split: Annotated[str, typer.Option(help="test, validation or train")] = "test",
    as_json: AsJson = False,
    own_code: Imports = None,
) -> None:
    """Group images by the parse tree that a network makes of them.

    Prints how many trees each class has, their entropy, and accuracy before and after couplings are
    quantised.
    """
    from torchcaps import tasks

    found = tasks.dictionary(
        network,
        levels=None if levels is None else levels_of("--levels", levels),
        each=each,
        data=data,
        root=root,
        split=split,
        picture=picture,
    )
    show_found(found, as_json)
