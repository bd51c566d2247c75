"""The weights that a run begins with, where they were trained before."""

import logging
import os
from pathlib import Path

from torch import nn

from torchcaps._digests import digest_of
from torchcaps._paths import path_of
from torchcaps.errors import TorchcapsError
from torchcaps.models.files.refit import say_what_is_new, take_fitting
from torchcaps.models.files.saving import file_of, load_network
from torchcaps.models.own import OwnNetwork
from torchcaps.train.folder.run import Run
from torchcaps.train.recipe import Recipe
from torchcaps.train.start import take_weights


def with_digest_of_start(
    recipe: Recipe, begin_with: str | os.PathLike[str] | None
) -> tuple[Recipe, Path | None]:
    """Give the recipe with the digest of the file that it begins with, and the file, of a run
    folder its network. A digest that the recipe has must be that of the file."""
    if begin_with is None:
        if recipe.begins_with is not None:
            raise TorchcapsError(
                f"the recipe begins with the weights {recipe.begins_with} of another run, so their "
                f"file must be given; `torchcaps train --init-from` and `torchcaps prune` do so: "
                f"repeat the command."
            )
        return recipe, None
    # Of a run that was stopped it says how to have its network.
    file = file_of(path_of("begin_with", begin_with))
    found = digest_of(file)[:12]
    if recipe.begins_with not in (None, found):
        raise TorchcapsError(
            f"the recipe begins with the weights {recipe.begins_with}, but {file} holds "
            f"{found}; was it trained on since? Take the file as it was, or begin a new run."
        )
    return recipe.model_copy(update={"begins_with": found}), file


def check_unseen(recipe: Recipe, begins: Path | None, digest: str) -> None:
    """Refuse to choose by images on which the run that this one begins with was trained, and say
    so where nothing is chosen. `digest` is that of all training images."""
    run = Run(Path() if begins is None else begins.parent)
    if begins != run.model_file or not run.is_done or not recipe.validation_share:
        return
    # The first runs did not say which images they had.
    if "digests" not in run.result() or run.image_digests()["train"] != digest:
        return
    seed, share = run.recipe.seed, run.recipe.validation_share
    # Of one seed, a smaller share is part of a larger one.
    if recipe.seed == seed and recipe.validation_share <= share:
        return
    seen = (
        f"{run.folder} was trained on images that are held out here: there they were those of seed "
        f"{seed} and validation_share {share}, here they are of seed {recipe.seed} and "
        f"validation_share {recipe.validation_share}"
    )
    if ways := recipe.by_validation():
        raise TorchcapsError(
            f"{' and '.join(ways)} would choose by images that the network has learnt: {seen}; "
            f"take that seed and that share, or leave {' and '.join(ways)} out."
        )
    logging.getLogger("torchcaps").warning(
        "%s; the accuracy on validation images says nothing of new ones", seen
    )


def take_start(model: nn.Module, start: Path | None) -> tuple[str, ...]:
    """Give the network the weights of a file that fit it; return the names of new ones."""
    if start is None:
        return ()
    if isinstance(model, OwnNetwork):
        take_weights(model, start)
        return ()
    try:
        own = model.state_dict()
        # By which numbers it standardises, the recipe says, and nobody learnt them.
        state = {
            name: own.get(name, value) if name.startswith("standardise.") else value
            for name, value in load_network(start).state_dict().items()
        }
        new = take_fitting(model, state)
    except TorchcapsError as error:
        raise TorchcapsError(f"{start}: {error}") from None
    say_what_is_new(str(start), new, model, state)
    return new
