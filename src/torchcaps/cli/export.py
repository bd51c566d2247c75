"""`torchcaps export`: write a trained network for another program."""

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.arguments import AsJson, Imports, Network
from torchcaps.cli.ending import show_found
from torchcaps.cli.listed import command


@command(110)
def export(
    network: Network,
    to: Annotated[str, typer.Option(help="onnx, torch (a .pt2 of torch.export), safetensors.")],
    out: Annotated[
        Path | None, typer.Option(help="The file; named as the network if not given.")
    ] = None,
    as_json: AsJson = False,
    own_code: Imports = None,
) -> None:
    """Write a trained network for another program.

    The file takes images and returns scores. Prints its size, how far its scores differ from those
    of the network, and the time of both; a file that scores otherwise is not kept.
    """
    from torchcaps import tasks

    show_found(tasks.export(network, to=to, out=out), as_json)
