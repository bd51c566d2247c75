"""`torchcaps crossval`: a network and a plain one on the same folds of a folder of pictures."""

from pathlib import Path
from typing import Annotated, Any

import typer

from torchcaps.cli.arguments import (
    AsJson,
    ExplainedCommand,
    Imports,
    Root,
    recipe_from,
    takes_recipe,
)
from torchcaps.cli.ending import show_found
from torchcaps.cli.listed import command


@command(45, cls=ExplainedCommand)
@takes_recipe
def crossval(
    out: Annotated[Path, typer.Option(help="Folder of the runs; the same line continues them.")],
    given: dict[str, Any],
    root: Root = None,
    folds: Annotated[int, typer.Option(help="How many.")] = 5,
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What it is compared with, repeatable: matched, a plain network on the same "
            "backbone or of its size, unless you say otherwise; networks by name; none.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say folds and cost, and train nothing.")
    ] = False,
    paper: Annotated[
        Path | None,
        typer.Option(help="Folder for what `torchcaps paper` writes of it, figures too."),
    ] = None,
    as_json: AsJson = False,
    own_code: Imports = None,
) -> None:
    """Train a network and a plain one on folds of a folder, and test which is ahead.

    Every picture is judged once, by networks that saw neither it nor its group. OUT gets a run for
    every fold, crossval.json and predictions.csv. Without --model it is efficient_capsnet, and
    --data is folder, the only one there is.
    """
    from torchcaps.study import write_paper
    from torchcaps.study.cross_validation import MATCHED, crossval, plan_of

    # A recipe file names its own network and data; --backbone stands for `capsules_on_backbone`.
    if given["recipe"] is None:
        chosen = None if given["backbone"] else "efficient_capsnet"
        given |= {"model": given["model"] or chosen, "data": given["data"] or "folder"}
    one = recipe_from(given)
    others = [] if against == ["none"] else against or [MATCHED]
    if dry_run:
        show_found(plan_of(one, root, None, folds, others), as_json)
        return
    show_found(crossval(one, out, root=root, folds=folds, against=others), as_json)
    if paper is not None:
        write_paper([out], paper, root=root)
