"""`torchcaps study`: the published claims, and the commands that run the tables of the papers."""

import json
from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.arguments import AsJson
from torchcaps.errors import TorchcapsError

__all__ = ["app"]

app = typer.Typer(help="The published claims, and what runs them.", no_args_is_help=True)


@app.command("claims")
def list_claims(
    paper: Annotated[str | None, typer.Option(help="A key: gu2021.")] = None,
    status: Annotated[str | None, typer.Option(help="cited, not run, not testable, tested")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list.")] = False,
) -> None:
    """List the claims of the papers, and where each stands.

    Prints one line a claim: its id, its status, and the number or the sentence.
    """
    from torchcaps.study import listed_claims

    rows = listed_claims(paper=paper, status=status)
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['id']}  {row['status']}{_why(row['word'])}  {row['says']}")


@app.command("table")
def print_table(
    paper: Annotated[str, typer.Argument(help="A key: gu2021.")],
    number: Annotated[int, typer.Argument(help="The number of the table in the paper.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands and run nothing.")
    ] = False,
    reduced: Annotated[
        bool, typer.Option("--reduced", help="The smaller form of each row.")
    ] = False,
    root: Annotated[Path, typer.Option(help="Folder of the data sets in the commands.")] = Path(
        "data"
    ),
    as_json: AsJson = False,
) -> None:
    """Print the commands that run a table, row by row, with what they cost.

    Cost is that of training all seeds; nothing is run.
    """
    from torchcaps import study

    if not dry_run:
        raise TorchcapsError(
            "a table is many hours of training, which no single command starts; add --dry-run to "
            "print the commands of its rows with their cost, and run those you want."
        )
    found = study.table(paper, number, reduced=reduced, root=str(root))
    print(json.dumps(found.numbers()) if as_json else found.text())


def _why(word: str | None) -> str:
    return "" if word is None else f" ({word})"
