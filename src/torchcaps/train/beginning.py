"""The network that a run begins with: drawn by the seed, or trained before."""

from pathlib import Path

from torch import nn

from torchcaps.errors import TorchcapsError
from torchcaps.train.digests import digest_of
from torchcaps.train.recipe import Recipe
from torchcaps.train.start import take_weights

__all__ = ["begin", "check_beginning"]


def check_beginning(recipe: Recipe, begin_with: Path | None) -> None:
    """The file and the field of the recipe belong together."""
    if begin_with is None:
        if recipe.begins_with is not None:
            raise TorchcapsError(
                f"the recipe begins with the weights {recipe.begins_with} of another run, so their "
                f"file must be given; `torchcaps prune` does so: repeat its command."
            )
        return
    if not begin_with.is_file():
        raise TorchcapsError(f"there is no saved network at {begin_with} to begin with.")
    found = digest_of(begin_with)[:12]
    if found != recipe.begins_with:
        raise TorchcapsError(
            f"the recipe begins with the weights {recipe.begins_with}, but {begin_with} holds "
            f"{found}; was it trained on since? Take the file as it was, or begin a new run."
        )


def begin(model: nn.Module, begin_with: Path | None) -> None:
    """Give the network the weights of a file, if there is one."""
    if begin_with is None:
        return
    try:
        take_weights(model, begin_with)
    except RuntimeError as error:
        raise TorchcapsError(
            f"the weights of {begin_with} do not fit the network of the recipe "
            f"({str(error).splitlines()[-1].strip()})."
        ) from None
