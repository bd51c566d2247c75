"""`torchcaps lr`: which learning rate?"""

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.arguments import (
    AsJson,
    FieldList,
    FieldsCommand,
    ImageSize,
    Imports,
    Model,
    OptionList,
    Protocol,
    Root,
    TrunkFile,
    fields_from,
    recipe_from,
)
from torchcaps.cli.ending import show_found
from torchcaps.cli.listed import command


@command(40, cls=FieldsCommand)
def lr(
    recipe: Annotated[
        Path | None, typer.Argument(help="A recipe in TOML, or a run folder.")
    ] = None,
    model: Model = None,
    data: Annotated[str | None, typer.Option(help="The data set to train on.")] = None,
    root: Root = None,
    image_size: ImageSize = None,
    option: OptionList = None,
    protocol: Protocol = None,
    field: FieldList = None,
    low: Annotated[float, typer.Option(help="The first rate.")] = 1e-6,
    high: Annotated[float, typer.Option(help="The last rate.")] = 1.0,
    steps: Annotated[int, typer.Option(help="How many steps, one a rate.")] = 100,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the loss over the rates: .svg or .png.")
    ] = None,
    trunk: TrunkFile = None,
    own_code: Imports = None,
    as_json: AsJson = False,
) -> None:
    """Say at which learning rate the loss falls fastest.

    Trains some steps at rates that grow from tiny to far too large, from the weights that a recipe
    starts with. Writes nothing but the picture.
    """
    from torchcaps import tasks, train, viz
    from torchcaps.tasks.rate_test import check_of_use

    if picture is not None:
        viz.check_figure_file(picture)
    file, where = recipe, root
    if recipe is not None and recipe.is_dir():
        run = train.Run(recipe)
        # Before the recipe is read, which may name code of one's own.
        run.check_imported()
        # Other data than those of the run lie elsewhere.
        file, where = run.recipe_file, run.root_or(root) if data is None else root
    given = {"protocol": protocol, "model": model, "data": data}
    chosen = recipe_from(file, given, image_size, field, option)
    check_of_use(fields_from(field))
    found = tasks.rate_test(chosen, root=where, low=low, high=high, steps=steps, trunk=trunk)
    if picture is not None:
        figure = viz.draw_rates(
            found.rates, found.losses, found.smoothed, suggested=found.suggested
        )
        viz.write_figure(figure, picture)
    show_found(found, as_json)
