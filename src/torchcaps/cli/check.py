"""`torchcaps check`: is every file of a run whole?"""

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.arguments import AsJson
from torchcaps.cli.ending import show_found
from torchcaps.cli.listed import command


@command(140)
def check(
    run: Annotated[Path, typer.Argument(help="A run folder, finished or not.")],
    as_json: AsJson = False,
) -> None:
    """Say of every file of a run whether it is whole, and what can be saved if not.

    Nothing is changed. Ends with 2 where a file is damaged or missing.
    """
    from torchcaps.tasks import check_run

    found = check_run(run)
    show_found(found, as_json)
    if not found.is_whole:
        raise typer.Exit(2)
