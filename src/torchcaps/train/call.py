"""Whether what a call of `fit` is given fits together, before anything is made."""

from numbers import Integral, Real

import torch
from torch import Tensor

from torchcaps.data import Images
from torchcaps.data.groups import check_apart
from torchcaps.errors import TorchcapsError, short
from torchcaps.train.recipe import Recipe
from torchcaps.train.start import check_alike, check_images_given

__all__ = ["check_call", "check_classes"]


def check_call(
    recipe: Recipe,
    own: tuple[Images, Images] | None,
    workers: int,
    time_budget: float | None,
) -> None:
    """Refuse a call that could only fail after a while."""
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
