"""`torchcaps study`: run a study, say how far it is, and the commands of the claims."""

import json
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from torchcaps._printable import printable
from torchcaps.cli.arguments import AsJson, Baseline, Imports, seconds_of
from torchcaps.cli.ending import show_found
from torchcaps.cli.listed import add_group
from torchcaps.errors import TorchcapsError, short
from torchcaps.study.court import court, needed_court

if TYPE_CHECKING:
    from torchcaps.study.system import Study

# Commands of the claims, so that each is known by name where they are not installed.
OF_CLAIMS = ("claims", "table", "tables", "report")


class StudyGroup(TyperGroup):
    """The commands here, and those of the claims where these are installed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*_commands_of_claims(), *super().list_commands(ctx)]

    def get_command(self, ctx: Any, name: str) -> Any:
        if name not in OF_CLAIMS:
            return super().get_command(ctx, name)
        needed_court(f"`torchcaps study {name}`")
        return _commands_of_claims()[name]


@cache
def _commands_of_claims() -> dict[str, Any]:
    found = court("torchcaps.study.commands")
    group: Any = typer.main.get_command(found) if found else None
    return dict(group.commands) if group else {}


app = typer.Typer(
    cls=StudyGroup,
    help="Studies of your own, the published claims, and what runs them.",
    no_args_is_help=True,
)
add_group(170, app, "study")

What = Annotated[
    str,
    typer.Argument(help="A paper (peer2022), the id of a claim, or a study of your own (my.toml)."),
]
TableNumber = Annotated[int | None, typer.Argument(help="A table of the paper; else all claims.")]
Reduced = Annotated[bool, typer.Option("--reduced", help="The smaller form of each row.")]
Seeds = Annotated[int | None, typer.Option(help="How many seeds, instead of as many as planned.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEXT",
        help="Of the systems those with this text in their names, as `study status` prints them; "
        "given more than once, those with all of the texts.",
    ),
]
Cells = Annotated[Path, typer.Option(help="Folder of the trained networks.")]


@app.command()
def run(
    what: What,
    table: TableNumber = None,
    reduced: Reduced = False,
    seeds: Seeds = None,
    only: Only = None,
    root: Annotated[Path, typer.Option(help="Folder of data sets that are files.")] = Path("data"),
    out: Cells = Path("runs"),
    evidence: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("evidence"),
    jobs: Annotated[int, typer.Option(help="Processes that train at once.")] = 1,
    together: Annotated[
        int,
        typer.Option(help="Networks that each process trains at once: for small ones on a GPU."),
    ] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda")] = "auto",
    on: Annotated[
        str,
        typer.Option(
            help="Where they are trained: here, ray (a Ray cluster; ray:HOST:PORT), or slurm "
            "(slurm:partition=gpu,timeout_min=60)."
        ),
    ] = "here",
    time_budget: Annotated[
        str | None,
        typer.Option(help="8m, 90s, 1h30m: then all states are saved, and the same line goes on."),
    ] = None,
    baseline: Baseline = None,
    as_json: AsJson = False,
    own_code: Imports = None,
) -> None:
    """Run a study, or go on with one, and write a record of each system.

    Prints what the records say. Every network is trained once, however often the line is typed,
    and whatever was killed in between.
    """
    from torchcaps.study.ledger import Ledger
    from torchcaps.study.pool import run_study
    from torchcaps.study.settings import Settings
    from torchcaps.study.watch import watched

    until = None if time_budget is None else time.time() + seconds_of(time_budget)
    study = _study(what, table, reduced, seeds, only, evidence)
    imports = (*(own_code or ()), *study.imports)
    settings = Settings(out, evidence, root, jobs, device, until, on, imports, together)
    with watched(study, Ledger(out)) as watch:
        paths = run_study(study, settings, watch=watch)
    if what.endswith(".toml"):
        _print_comparison(study, paths, out, baseline, as_json)
        return
    found = needed_court("what records say of claims").outcome_of(study, paths)
    show_found(found, as_json)


@app.command()
def status(
    what: Annotated[
        str | None,
        typer.Argument(help="A paper, a claim, or a study of your own; else all claims."),
    ] = None,
    table: TableNumber = None,
    reduced: Reduced = False,
    seeds: Seeds = None,
    only: Only = None,
    out: Cells = Path("runs"),
    evidence: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("evidence"),
    by: Annotated[
        str, typer.Option(help="Order of the rows: table, as the paper has them, or cost.")
    ] = "table",
    as_json: AsJson = False,
    own_code: Imports = None,
) -> None:
    """Say how far a study is: cells done, running and left, and the hours that are left.

    Cells are done by their runs; how many stand in records besides, which need no runs, is counted
    by itself. With --by cost the rows are a queue, the cheapest first.
    """
    from rich.console import Console

    from torchcaps.study import read_records
    from torchcaps.study.ledger import Ledger
    from torchcaps.study.watch import progress_of

    if by not in ("table", "cost"):
        raise TorchcapsError(f"--by must be table or cost, but is {short(by)}.")
    study = _study(what, table, reduced, seeds, only, evidence)
    found = progress_of(study, Ledger(out), records=read_records(evidence).values())
    if as_json:
        print(json.dumps(found.numbers(by_cost=by == "cost")))
        return
    Console(highlight=False).print(found.table(by_cost=by == "cost"))


def _print_comparison(
    study: "Study", paths: list[Path], out: Path, baseline: str | None, as_json: bool
) -> None:
    """Print and draw the table of a study of one's own; seeds that failed are named."""
    from torchcaps.cli.compare import show
    from torchcaps.study import Comparison, compare, read_record
    from torchcaps.study.ledger import Ledger

    if drafts := sum(read_record(path).is_draft for path in paths):
        print(
            f"drafts, which no page of results shows: {drafts} of {len(paths)} records; the code "
            f"had changes, or was no commit",
            file=sys.stderr,
        )
    ledger = Ledger(out)
    states = [(cell, ledger.state(cell)) for cell in study.cells()]
    ended = [cell for cell, state in states if state == "done"]
    done = [ledger.run(cell).folder for cell in ended]
    # Another study of the same runs may have measured more.
    asked = {"accuracy", *(name for cell in ended for name in ledger.values(cell))}
    why = {cell.name: ledger.failure(cell) or "" for cell, state in states if state == "failed"}
    for name, reason in why.items():
        print(printable(f"{name} failed and is in no mean: {reason}"), file=sys.stderr)
    if done:
        found = compare(done).only(asked, without=study.unasked).against(baseline)
        plot = out / f"{study.name.replace('/', '-')}.svg"
        show(found, plot=plot, as_json=as_json, failed=why)
    elif as_json:
        print(json.dumps(Comparison(()).numbers() | {"failed": why}))


def _study(
    what: str | None,
    table: int | None,
    reduced: bool,
    seeds: int | None,
    only: list[str] | None,
    evidence: Path,
) -> "Study":
    from torchcaps.study.own import read_study
    from torchcaps.study.system import only_those

    if what is not None and what.endswith(".toml"):
        _check_alone(what, table, reduced, seeds)
        found = read_study(what)
    else:
        of_papers = needed_court("a study of a paper")
        plan = {"reduced": reduced, "seeds": seeds, "evidence": evidence}
        if what is None:
            found = of_papers.study_of_claims(of_papers.claims(), "all", **plan)
        else:
            found = of_papers.study_of(what, table, **plan)
    return only_those(found, only) if only else found


def _check_alone(what: str, table: int | None, reduced: bool, seeds: int | None) -> None:
    """Refuse options beside a file of one's own, which says all of it itself."""
    words = {
        f"Table {table}": table is not None,
        "--reduced": reduced,
        f"--seeds {seeds}": seeds is not None,
    }
    given = [word for word, is_given in words.items() if is_given]
    if given:
        raise TorchcapsError(
            f"{' and '.join(given)} {'belongs' if len(given) == 1 else 'belong'} to the plan of a "
            f"paper, and {what} has its own; say in the file which seeds and which epochs are "
            f"meant."
        )
