"""The images of a recipe: which it names, how a network is shown them, which are held out."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torchcaps.data import Images, load, some_of
from torchcaps.data.read.folder import SizesDiffer
from torchcaps.data.registry import Split
from torchcaps.data.shown.crop import windows
from torchcaps.data.some import can_be_parted
from torchcaps.models.files.saving import load_network
from torchcaps.models.own import OWN
from torchcaps.train.recipe import Recipe
from torchcaps.train.seeds import HOLD_OUT, SOME, seed_of

# Training images that an epoch is measured on where none are held out.
SAMPLE = 1000


def images_of(
    recipe: Recipe, split: Split, *, root: str | os.PathLike[str] | None = None
) -> Images:
    """Load the images that a recipe names, as the network is shown them.

    Arguments:
        recipe: it.
        split: "train" or "test".
        root: where the data lies, for data sets that are files.

    >>> images_of(make_recipe(model="capsnet", data="part-whole"), "test").image_shape
    (1, 32, 32)
    """
    return _load(recipe, recipe.data, split, root)


def images_tested_on(recipe: Recipe, *, root: str | os.PathLike[str] | None = None) -> Images:
    """Load what the network is tested on when training is done: `test_data`, or its own data."""
    return _load(recipe, recipe.test_data or recipe.data, "test", root)


def _load(recipe: Recipe, name: str, split: Split, root: str | os.PathLike[str] | None) -> Images:
    groups, fold = (recipe.groups, recipe.fold) if name == recipe.data else (None, None)
    images = load(name, split=split, root=root, size=recipe.image_size, groups=groups, fold=fold)
    return as_shown(recipe, images)


def as_shown(recipe: Recipe, images: Images) -> Images:
    """Change any images to what the network is shown when it is tested."""
    return windows(images, size=recipe.image_size, crop=recipe.crop)


@dataclass(frozen=True)
class Source:
    """Where a run has its images from: the data set of its recipe, or the user's own."""

    recipe: Recipe
    root: str | os.PathLike[str] | None
    own: tuple[Images, Images] | None
    # The network that the run begins with.
    begins: Path | None

    def of(self, split: Split) -> Images:
        """Load one split. Where pictures have several sizes, the one to choose is that of the
        network that the run begins with: at another one less of it fits."""
        if self.own is not None:
            return as_shown(self.recipe, self.own[0 if split == "train" else 1])
        try:
            return images_of(self.recipe, split, root=self.root)
        except SizesDiffer as error:
            if self.begins is None or self.recipe.model == OWN:
                raise
            config = load_network(self.begins).config
            assert isinstance(config, dict)
            _, height, width = config["image"]
            whose = f", that of the network in {self.begins},"
            raise SizesDiffer(error.found, (height, width), whose) from None

    @cached_property
    def test(self) -> Images:
        """The test images, loaded when they are first asked for."""
        return self.of("test")


def parted(recipe: Recipe, images: Images) -> tuple[Images, Images | None]:
    """Part all training images into those that are trained on and those held out, if any.

    Held out first, so that a recipe with fewer training images is validated on the same images.
    """
    held = None
    if recipe.validation_share:
        images, held = images.hold_out(
            share=recipe.validation_share, seed=seed_of(recipe.seed, HOLD_OUT)
        )
    if recipe.train_images is not None:
        images = some_of(images, recipe.train_images, seed=seed_of(recipe.seed, SOME))
    return images, held


def watched(recipe: Recipe, images: Images) -> tuple[Images, Images]:
    """Part off what is looked at after every epoch: held out, or about a thousand of the same."""
    training, held = parted(recipe, images)
    if held is not None:
        return training, held
    seed = seed_of(recipe.seed, HOLD_OUT)
    has_groups = getattr(training, "groups", None) is not None
    if training.judged_by != "class" or not can_be_parted(training) or has_groups:
        # Of a few digits parted off, maybe of one, other pairs would be made, or none. To look at
        # images that are trained on, no group need be kept together.
        return training, some_of(training, min(SAMPLE, len(training)), seed=seed)
    return training, training.hold_out(share=min(SAMPLE / len(training), 0.5), seed=seed)[1]
