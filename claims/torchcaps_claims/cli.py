"""The commands of `torchcaps study` that only the claims have."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from torchcaps._printable import printable
from torchcaps.cli.arguments import AsJson
from torchcaps.errors import TorchcapsError

app = typer.Typer()


@app.command("claims")
def list_claims(
    paper: Annotated[str | None, typer.Option(help="A key: gu2021.")] = None,
    status: Annotated[
        str | None,
        typer.Option(
            help="A verdict: reproduced, better, worse, otherwise, holds, fails, leans yes, "
            "leans no, undecided, on our default, not run at size, by definition. Where there "
            "is none: cited, not run, not testable, tested."
        ),
    ] = None,
    evidence: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("evidence"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list.")] = False,
) -> None:
    """List the claims of the papers, and where each stands.

    Prints one line a claim: its id, its status, and the number or the sentence.
    """
    from torchcaps_claims.listing import listed_claims

    _tell_missing(evidence)
    rows = listed_claims(paper=paper, status=status, evidence=evidence)
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        why = "" if row["word"] is None else f" ({row['word']})"
        print(f"{row['id']}  {row['status']}{why}  {row['says']}")


@app.command("table")
def print_table(
    what: Annotated[str, typer.Argument(help="A paper (gu2021), or the id of a claim.")],
    number: Annotated[
        int | None, typer.Argument(help="A table of the paper; else all of its claims.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands and run nothing.")
    ] = False,
    reduced: Annotated[
        bool, typer.Option("--reduced", help="The smaller form of each row.")
    ] = False,
    root: Annotated[Path, typer.Option(help="Folder of the data sets in the commands.")] = Path(
        "data"
    ),
    gpu_tflops: Annotated[
        float | None,
        typer.Option(help="TFLOP a second that your GPU trains at, for the hours on it."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the commands that run a table, row by row, with what they cost.

    Cost is that of training all seeds; nothing is run. Each row says by which test it is judged,
    which statistics are read, and where it departs from the paper.
    """
    from torchcaps_claims.tables import table

    if not dry_run:
        words = what if number is None else f"{what} {number}"
        raise TorchcapsError(
            f"without --dry-run there is nothing to print; add it to see the commands of the "
            f"table, or run them with `torchcaps study run {words}`."
        )
    rate = None if gpu_tflops is None else gpu_tflops * 1e12
    found = table(what, number, reduced=reduced, root=str(root), gpu_rate=rate)
    print(json.dumps(found.numbers()) if as_json else found.text())


@app.command()
def tables(
    evidence: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("evidence"),
    out: Annotated[Path, typer.Option(help="Folder of the pages.")] = Path("claims/pages"),
    readme: Annotated[Path, typer.Option(help="File with the overview.")] = Path("README.md"),
) -> None:
    """Write the pages of the court out of the records, and the overview into the README.

    Prints all paths.
    """
    from torchcaps_claims.site import write_pages

    for path in write_pages(evidence, out, readme):
        print(path)


@app.command()
def report(
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("claims.html"),
    evidence: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("evidence"),
) -> None:
    """Write every claim with its verdict into one HTML page.

    It filters by paper and verdict, and draws our numbers beside the printed ones. Prints its path.
    """
    from torchcaps_claims.report import write_claims_report

    _tell_missing(evidence)
    print(write_claims_report(out, evidence=evidence))


def _tell_missing(evidence: Path) -> None:
    """Else every claim would seem to be one that nobody has run."""
    if not evidence.is_dir():
        print(
            printable(
                f"there is no folder {evidence}, so no claim has a record here; --evidence names "
                f"the folder of the records"
            ),
            file=sys.stderr,
        )
