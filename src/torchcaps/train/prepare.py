"""All that a run needs before its first step, made or refused."""

import os
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps._paths import path_of
from torchcaps.data import Images
from torchcaps.data.groups import check_apart
from torchcaps.errors import TorchcapsError, short
from torchcaps.prune import Pruner
from torchcaps.train.first_weights import check_unseen, take_start
from torchcaps.train.folder.run import Run
from torchcaps.train.frozen import freeze
from torchcaps.train.grouped import warn_of_groups
from torchcaps.train.images import Source, images_tested_on, watched
from torchcaps.train.loggers import Logger
from torchcaps.train.pruning import make_pruner
from torchcaps.train.ranks import Ranks
from torchcaps.train.recipe import Recipe
from torchcaps.train.sampled import Sampled
from torchcaps.train.selecting import check_selectable
from torchcaps.train.start import (
    check_alike,
    check_backbone,
    check_images_given,
    check_updates,
    initial_model,
    is_without,
    named_class,
    take_frozen,
)
from torchcaps.train.weighing import weighed


class Call(NamedTuple):
    """What `fit` is called with."""

    recipe: Recipe
    out: str | os.PathLike[str]
    root: str | os.PathLike[str] | None = None
    own: tuple[Images, Images] | None = None
    begin_with: str | os.PathLike[str] | None = None
    label: str | None = None
    workers: int = 0
    time_budget: float | None = None
    loggers: Sequence[Logger] = ()
    model: nn.Module | None = None
    trunk: str | os.PathLike[str] | None = None
    compiled: bool = False


class Prepared(NamedTuple):
    """A run that can be trained."""

    # All that the recipe names for training: those trained on, and those held out.
    images: Images
    training: Images
    validation: Images
    # What it is tested on, where that is another set than its own.
    elsewhere: Images | None
    model: nn.Module
    # Weights that nothing in the file that the run begins with fitted.
    made_new: tuple[str, ...]
    pruner: Pruner | None
    sampled: Sampled
    # Of all training images.
    digest: str
    # What is written beside the environment.
    about: Mapping[str, Any]


def prepare(run: Run, source: Source, ranks: Ranks, call: Call, *, keeps_memory: bool) -> Prepared:
    """Read the training images, make the network with its first weights, and check that they fit.

    Nothing is written, so that a recipe that cannot be trained leaves no folder behind.
    """
    recipe = source.recipe
    images = source.of("train")
    check_classes(images)
    elsewhere = None
    if recipe.test_data is not None:
        elsewhere = images_tested_on(recipe, root=source.root)
        check_alike(images, elsewhere)
    training, validation = watched(recipe, images)
    check_classes(training)
    check_selectable(recipe.select_by, validation)
    check_updates(recipe, training)
    check_backbone(recipe, begins=source.begins is not None)
    model = initial_model(recipe, training, call.model)
    made_new = take_start(model, source.begins)
    freeze(model, recipe.freeze, made_new=made_new)
    # A run that goes on has them in its state, one that begins with a network in that.
    begun = source.begins is not None and not is_without(model, made_new)
    frozen = take_frozen(model, call.trunk, has_weights=begun or run.state_file.is_file())
    pruner = make_pruner(recipe, model)
    sampled = Sampled(weighed(recipe, training), validation)
    sampled.try_on(model)
    digest = images.digest()
    check_unseen(recipe, source.begins, digest)
    ranks.first_does(lambda: warn_of_groups(recipe, source.root, source.own))
    about = {"keeps_memory": keeps_memory, **named_class(model), **frozen}
    if call.compiled:
        about["compiled"] = True
    if source.root is not None:
        about["root"] = str(path_of("root", source.root).resolve())
    return Prepared(
        images, training, validation, elsewhere, model, made_new, pruner, sampled, digest, about
    )


def check_call(call: Call) -> None:
    """Refuse a call that could only fail after a while."""
    recipe, own, workers, time_budget = call.recipe, call.own, call.workers, call.time_budget
    if not isinstance(recipe, Recipe):
        raise TorchcapsError(
            f"fit takes a recipe, what train.make_recipe returns, but got {short(recipe)}."
        )
    if not isinstance(workers, Integral) or workers < 0:
        raise TorchcapsError(f"workers must be 0 or more processes, but came as {short(workers)}.")
    # Written so that nan is refused too.
    if time_budget is not None and not (isinstance(time_budget, Real) and time_budget > 0):
        raise TorchcapsError(
            f"the time budget must be above 0 seconds, but came as {short(time_budget)}."
        )
    if (own is None) == (recipe.data == "own"):
        if own is None:
            raise TorchcapsError(
                'the recipe says data "own", but no images were given; give them to fit: '
                "own=(train, test)."
            )
        raise TorchcapsError(
            f'own images were given, but the recipe says data "{recipe.data}"; make the recipe '
            f'with data="own", or leave own out.'
        )
    if recipe.precision == "float16" and not torch.cuda.is_available():
        raise TorchcapsError(
            "float16 is for a GPU, and there is none here; on a CPU take bfloat16, which needs no "
            "care for overflow."
        )
    if own is not None:
        check_images_given(own)
        check_alike(*own)
        groups = [getattr(images, "groups", None) for images in own]
        if None not in groups:
            check_apart(own[0].name, *groups)


def check_classes(images: Images) -> None:
    """Refuse images of one class, of which an accuracy of 100 % would say nothing."""
    labels = getattr(images, "labels", None)
    if isinstance(labels, Tensor) and labels.ndim == 1 and len(labels.unique()) == 1:
        name = images.class_names[int(labels[0])]
        all_are = f"all {len(images)} training images of {images.name} are"
        if len(images) == 1:
            all_are = f"the only training image of {images.name} is"
        raise TorchcapsError(
            f"{all_are} of one class, {name!r}, so there is nothing to tell apart; are the labels "
            f"right, and were all images of another class held out?"
        )
