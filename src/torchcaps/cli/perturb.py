"""`torchcaps perturb`: what the components of a class capsule draw."""

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.arguments import AsJson, Data, Imports, Root
from torchcaps.cli.ending import show_found
from torchcaps.cli.listed import command


@command(120)
def perturb(
    network: Annotated[Path, typer.Argument(help="A run, or a saved network, with a decoder.")],
    picture: Annotated[
        Path | None, typer.Option(help="Draw a row a component: .svg, .pdf or .png.")
    ] = None,
    image: Annotated[int, typer.Option(help="Number of the test image.")] = 0,
    data: Data = None,
    root: Root = None,
    as_json: AsJson = False,
    own_code: Imports = None,
) -> None:
    """Move the components of the predicted class capsule one by one, and draw what is decoded.

    Prints by how much each component changes the drawing.
    """
    from torchcaps import tasks

    found = tasks.perturb(network, image=image, data=data, root=root, picture=picture)
    show_found(found, as_json)
