"""`torchcaps doctor`: say why a network does not learn."""

from pathlib import Path
from typing import Annotated, Any

import typer

from torchcaps.cli.arguments import (
    AsJson,
    ExplainedCommand,
    Imports,
    Root,
    TrunkFile,
    recipe_from,
    takes_recipe,
)
from torchcaps.cli.ending import show_found
from torchcaps.cli.listed import command
from torchcaps.errors import TorchcapsError


@command(130, cls=ExplainedCommand)
@takes_recipe
def doctor(
    given: dict[str, Any],
    run: Annotated[Path | None, typer.Argument(help="A run folder, finished or not.")] = None,
    root: Root = None,
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

    if run is not None and (any(given.values()) or trunk):
        raise TorchcapsError(
            "a run knows its network and its data; give the run folder alone, or --model and "
            "--data."
        )
    if run is not None:
        found = tasks.doctor_run(run, root=root, seconds=seconds)
    elif given["recipe"] or (given["data"] and (given["model"] or given["backbone"])):
        found = tasks.doctor(recipe_from(given), root=root, seconds=seconds, trunk=trunk)
    else:
        raise TorchcapsError(
            "doctor needs a run folder, or --model and --data of a network that is to be trained, "
            "or its --recipe."
        )
    show_found(found, as_json)
