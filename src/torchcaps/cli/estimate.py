"""`torchcaps estimate`: what a network would take."""

from typing import Annotated

import typer

from torchcaps.cli.arguments import AsJson, Imports, OptionList, options_from, sides
from torchcaps.cli.ending import show_found
from torchcaps.cli.listed import command
from torchcaps.errors import TorchcapsError

# What the command itself is told, which would come twice as an option of the network.
ITS_OWN = {
    "model": "--model",
    "image": "--image",
    "n_classes": "--classes",
    "batch_size": "--batch-size",
    "precision": "--precision",
}


@command(150)
def estimate(
    model: Annotated[str, typer.Option(help="A name that `torchcaps models` lists.")],
    image: Annotated[
        str | None, typer.Option(metavar="CxHxW", help="Channels, height, width: 3x64x48.")
    ] = None,
    classes: Annotated[int | None, typer.Option(help="How many.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images a step.")] = 128,
    precision: Annotated[str, typer.Option(help="float32, bfloat16")] = "float32",
    option: OptionList = None,
    as_json: AsJson = False,
    own_code: Imports = None,
) -> None:
    """Say what a network would take, before anything is made.

    Prints its parameters, FLOPs, votes, and the peak memory of a training step and of inference on
    a CPU. Image and classes are those of the paper if not given.
    """
    from torchcaps import tasks

    options = options_from(option)
    for name in (each for each in options if each in ITS_OWN):
        raise TorchcapsError(
            f"--option is for options of the network, but {name} came with it, which estimate "
            f"takes by itself; write {ITS_OWN[name]} instead."
        )
    found = tasks.estimate(
        model,
        image=None if image is None else sides("--image", image, "3x64x48"),
        n_classes=classes,
        batch_size=batch_size,
        precision=precision,  # type: ignore[arg-type]
        **options,
    )
    show_found(found, as_json)
