"""What evens out classes of unequal size: weights of the loss, or how often each is shown."""

from torch import Tensor

from torchcaps.data import Images
from torchcaps.errors import TorchcapsError
from torchcaps.train.recipe import Recipe


def weighed(recipe: Recipe, images: Images) -> Recipe:
    """Give the recipe with its class weights in numbers, those of these training images where it
    says "balanced": n / (k n_c), of which the mean over images is 1."""
    given, names = recipe.class_weights, images.class_names
    if recipe.sampling == "balanced":
        _labels(images, 'sampling = "balanced"')
    if given is None:
        return recipe
    labels = _labels(images, "class_weights")
    if given != "balanced":
        if len(given) != len(names):
            raise TorchcapsError(
                f"class_weights must have one number a class, but has {len(given)} and "
                f"{images.name} has {len(names)} classes; give them in the order of its names, "
                f'{names[0]!r} first, or take "balanced".'
            )
        return recipe
    counts = labels.bincount(minlength=len(names))
    if not bool(counts.all()):
        raise TorchcapsError(
            f'class_weights = "balanced" needs training images of every class, but none is of '
            f"{names[int(counts.argmin())]!r}; give the numbers, or leave the class out."
        )
    weights = len(labels) / (len(names) * counts.double())
    return recipe.model_copy(update={"class_weights": tuple(weights.tolist())})


def _labels(images: Images, what: str) -> Tensor:
    labels: Tensor | None = getattr(images, "labels", None)
    if labels is None or labels.ndim != 1 or images.judged_by != "class":
        raise TorchcapsError(
            f"{what} goes by the one class of each image, but images of {images.name} may show "
            f"several objects, or are made when they are wanted; leave it out."
        )
    return labels.cpu()
