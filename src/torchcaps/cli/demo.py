"""`torchcaps demo`: two networks and one page."""

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.listed import command


@command(10)
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and the report.")] = Path(
        "torchcaps-demo"
    ),
    seed: Annotated[int, typer.Option(help="Another seed, another pair of networks.")] = 0,
) -> None:
    """Train two networks, look inside, write a page.

    They are a five-layer capsule network and its uniform twin, on images of composed parts. Prints
    the path of the page. Called again, it goes on where it stopped.
    """
    from torchcaps import tasks

    print(tasks.demo(out, seed=seed))
