"""Which training images a recipe trains on, and which it holds out."""

from torchcaps.data import Images, some_of
from torchcaps.train.recipe import Recipe
from torchcaps.train.seeds import HOLD_OUT, SOME, seed_of

__all__ = ["parted"]


def parted(recipe: Recipe, images: Images) -> tuple[Images, Images | None]:
    """(what is trained on, what is held out, if anything), of all training images.

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
