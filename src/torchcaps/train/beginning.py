"""The weights that a run begins with, where they were trained before, and what stays as it is."""

import logging
import os
from pathlib import Path

from torch import nn

from torchcaps._digests import digest_of
from torchcaps._paths import path_of
from torchcaps.errors import TorchcapsError, nearest
from torchcaps.models.files.refit import say_what_is_new, take_fitting
from torchcaps.models.files.saving import file_of, load_network
from torchcaps.models.own import OwnNetwork, check_has_weights
from torchcaps.train.folder.run import Run
from torchcaps.train.recipe import Recipe
from torchcaps.train.start import take_weights


def beginning(
    recipe: Recipe, begin_with: str | os.PathLike[str] | None
) -> tuple[Recipe, Path | None]:
    """The recipe with the digest of the file that it begins with, and the file, of a run folder its
    network. A digest that the recipe has must be that of the file."""
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


def begin(model: nn.Module, begin_with: Path | None) -> tuple[str, ...]:
    """Give the network the weights of a file that fit it, if there is one; the names of those that
    are new."""
    if begin_with is None:
        return ()
    if isinstance(model, OwnNetwork):
        take_weights(model, begin_with)
        return ()
    try:
        own = model.state_dict()
        # By which numbers it standardises, the recipe says, and nobody learnt them.
        state = {
            name: own.get(name, value) if name.startswith("standardise.") else value
            for name, value in load_network(begin_with).state_dict().items()
        }
        new = take_fitting(model, state)
    except TorchcapsError as error:
        raise TorchcapsError(f"{begin_with}: {error}") from None
    say_what_is_new(str(begin_with), new, model, state)
    return new


def freeze(model: nn.Module, names: tuple[str, ...], *, made_new: tuple[str, ...] = ()) -> None:
    """Train the weights of the parts of these names no more; what `begin` made new must not be
    among them, since nobody ever trained it."""
    whole = _whole(model)
    parts = dict(whole.named_modules())
    for name in names:
        if name not in parts or not name:
            known = [each for each in parts if each and each.count(".") < 2]
            # Of a weight, as state_dict names it, the part that holds it.
            holders = [each for each in known if name.startswith(f"{each}.")]
            meant = {name: holders[-1]} if holders else {}
            raise TorchcapsError(
                f"freeze: the network has no part {name!r}; {nearest(name, known, meant=meant)}."
            )
        untrained = [each for each in made_new if each.startswith(f"{name}.")]
        if untrained:
            raise TorchcapsError(
                f"freeze: {', '.join(untrained)} of {name} fits nothing in the file that the run "
                f"begins with and was made new, so frozen it would never be trained; leave {name} "
                f"out of freeze, or name the parts of it that were kept."
            )
        parts[name].requires_grad_(False)
    if not any(weight.requires_grad for weight in model.parameters()):
        check_has_weights(whole)
        if not names:
            raise TorchcapsError(
                f"none of the weights of {type(whole).__name__} is to be trained; set "
                f"requires_grad_(True) on those that are."
            )
        raise TorchcapsError(
            f"freeze={', '.join(names)} leaves no weight to train; leave one part out of it."
        )


def eval_frozen(model: nn.Module, names: tuple[str, ...]) -> None:
    """Let the parts of these names go by their statistics. They are looked up each time: Lightning
    may have put a synchronised batch normalisation in the place of one that was frozen."""
    for name in names:
        _whole(model).get_submodule(name).eval()


def _whole(model: nn.Module) -> nn.Module:
    """The network as its parts are named."""
    return model.module if isinstance(model, OwnNetwork) else model
