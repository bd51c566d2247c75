"""`torchcaps predict`: say what is on pictures."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from torchcaps._printable import printable
from torchcaps.cli.arguments import Imports, Network
from torchcaps.cli.listed import command


@command(90)
def predict(
    network: Network,
    images: Annotated[list[Path], typer.Argument(help="Picture files.")],
    resize: Annotated[
        bool, typer.Option("--resize", help="Stretch pictures to the size the network takes.")
    ] = False,
    crop: Annotated[
        bool, typer.Option("--crop", help="Take the middle in the network's proportions.")
    ] = False,
    invert: Annotated[bool, typer.Option("--invert", help="Swap light and dark.")] = False,
    centre: Annotated[
        bool, typer.Option("--centre", help="Move the centre of brightness to the middle.")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Draw images, scores, reconstructions: .svg, .pdf or .png.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a picture.")] = False,
    own_code: Imports = None,
) -> None:
    """Say what is on pictures.

    Prints the class of each, and how sure of it the network is.
    """
    from torchcaps import layers, tasks

    layers.keep_memory()
    found = tasks.predict(
        network, images, resize=resize, crop=crop, invert=invert, centre=centre, picture=picture
    )
    for each in found:
        for note in each.notes:
            print(printable(note), file=sys.stderr)
    for each in found:
        print(json.dumps(each.numbers()) if as_json else printable(each.text()))
    if not as_json:
        print(f"scores are {found[0].meaning}", file=sys.stderr)
