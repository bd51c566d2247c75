"""`torchcaps doctor`: say why a network does not learn."""

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.arguments import (
    AsJson,
    FieldList,
    Groups,
    ImageSize,
    Imports,
    Model,
    OptionList,
    Protocol,
    RecipeFile,
    Root,
    TrunkFile,
    recipe_from,
)
from torchcaps.cli.ending import show_found
from torchcaps.cli.listed import command
from torchcaps.errors import TorchcapsError


@command(130)
def doctor(
    run: Annotated[Path | None, typer.Argument(help="A run folder, finished or not.")] = None,
    model: Model = None,
    data: Annotated[str | None, typer.Option(help="The data set it shall be trained on.")] = None,
    root: Root = None,
    image_size: ImageSize = None,
    groups: Groups = None,
    option: OptionList = None,
    recipe: RecipeFile = None,
    protocol: Protocol = None,
    field: FieldList = None,
    seconds: Annotated[
        float, typer.Option(min=1, help="Time to learn a few images by heart.")
    ] = 30,
    as_json: AsJson = False,
    trunk: TrunkFile = None,
    own_code: Imports = None,
) -> None:
    """Say why a network does not learn.

    Examines the machine, the images, and the network of a run, or one that is to be trained.
    Prints a verdict each: fine, look, broken. Exit code 0 means that it could look.
    """
    from torchcaps import tasks

    if run is not None and (
        model or data or image_size or groups or option or recipe or protocol or field or trunk
    ):
        raise TorchcapsError(
            "a run knows its network and its data; give the run folder alone, or --model and "
            "--data."
        )
    if run is not None:
        found = tasks.doctor_run(run, root=root, seconds=seconds)
    elif recipe is not None or (model is not None and data is not None):
        given = {"protocol": protocol, "model": model, "data": data, "groups": groups}
        patient = recipe_from(recipe, given, image_size, field, option)
        found = tasks.doctor(patient, root=root, seconds=seconds, trunk=trunk)
    else:
        raise TorchcapsError(
            "doctor needs a run folder, or --model and --data of a network that is to be trained, "
            "or its --recipe."
        )
    show_found(found, as_json)
