"""`torchcaps crossval`: a network and a plain one on the same folds of a folder of pictures."""

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.arguments import (
    AsJson,
    Backbone,
    FieldList,
    FieldsCommand,
    Groups,
    ImageSize,
    Imports,
    Model,
    OptionList,
    RecipeFile,
    Root,
    on_backbone,
    recipe_from,
)
from torchcaps.cli.ending import show_found
from torchcaps.cli.listed import command


@command(45, cls=FieldsCommand)
def crossval(
    out: Annotated[Path, typer.Option(help="Folder of the runs; the same line continues them.")],
    recipe: RecipeFile = None,
    model: Model = None,
    data: Annotated[str | None, typer.Option(help="folder, the only one there is.")] = None,
    root: Root = None,
    image_size: ImageSize = None,
    groups: Groups = None,
    folds: Annotated[int, typer.Option(help="How many.")] = 5,
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What it is compared with, repeatable: matched, a plain network on the same "
            "backbone or of its size, unless you say otherwise; networks by name; none.",
        ),
    ] = None,
    option: OptionList = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training images.")] = None,
    field: FieldList = None,
    backbone: Backbone = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say folds and cost, and train nothing.")
    ] = False,
    as_json: AsJson = False,
    own_code: Imports = None,
) -> None:
    """Train a network and a plain one on folds of a folder, and test which is ahead.

    Every picture is judged once, by networks that saw neither it nor its group. OUT gets a run for
    every fold, crossval.json and predictions.csv. Without --model it is efficient_capsnet.
    """
    from torchcaps.study.cross_validation import MATCHED, crossval, plan_of

    model, option = on_backbone(backbone, recipe, model, option)
    given = {"model": model, "data": data, "groups": groups, "epochs": epochs}
    if recipe is None:
        given |= {"model": model or "efficient_capsnet", "data": data or "folder"}
    one = recipe_from(recipe, given, image_size, field, option)
    others = [] if against == ["none"] else against or [MATCHED]
    if dry_run:
        show_found(plan_of(one, root, None, folds, others), as_json)
        return
    show_found(crossval(one, out, root=root, folds=folds, against=others), as_json)
