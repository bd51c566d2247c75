"""`torchcaps shrink`: take parts out of a trained network."""

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.arguments import AsJson, Data, Imports, Network, Root
from torchcaps.cli.ending import show_found
from torchcaps.cli.listed import command


@command(110)
def shrink(
    network: Network,
    out: Annotated[Path, typer.Option(help="File of the smaller network: small.safetensors.")],
    silent: Annotated[
        float | None,
        typer.Option(
            metavar="LENGTH",
            help="Also take out capsules never longer than this on training images; 0 for silent.",
        ),
    ] = None,
    dead: Annotated[
        bool,
        typer.Option(
            "--dead", help="Also take out dead capsules: lengths of a mean and spread up to 0.05."
        ),
    ] = False,
    images: Annotated[
        int | None,
        typer.Option(help="At how many training images these two look; 1000 if not given."),
    ] = None,
    data: Data = None,
    root: Root = None,
    as_json: AsJson = False,
    own_code: Imports = None,
) -> None:
    """Take out of a network what nothing reads.

    Writes a network file that eval, dissect, dictionary, predict and perturb read, and prints size,
    time, memory and accuracy before and after, and the largest change of a score on the test
    images.
    """
    from torchcaps import tasks

    found = tasks.shrink(network, out, below=silent, dead=dead, data=data, root=root, images=images)
    show_found(found, as_json)
