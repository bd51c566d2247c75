"""`torchcaps paper`: what a paper says of runs."""

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.arguments import Imports, Root
from torchcaps.cli.listed import command


@command(115)
def paper(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders that hold some.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("paper"),
    root: Root = None,
    figures: Annotated[
        bool, typer.Option(help="Show the networks their test images again, and draw.")
    ] = True,
    own_code: Imports = None,
) -> None:
    """Write what a paper says of finished runs: methods, table, references, figures.

    All of it is from the records of the runs, and what they do not tell is said. Prints the folder.
    """
    from torchcaps import study

    print(study.write_paper(runs, out, root=root, figures=figures))
