"""A plain network to compare a capsule network with: on the same backbone, or as large."""

from bisect import bisect_left
from typing import Any

from torchcaps.errors import TorchcapsError
from torchcaps.models import MODELS, create_model
from torchcaps.models.limits import without_memory
from torchcaps.train import Recipe, make_recipe

# The plain network on the same backbone, by the name of the capsule network.
ON_THE_SAME = {
    "capsules_on_backbone": "linear_on_backbone",
    "efficient_capsnet": "efficient_convnet",
    **{f"rem_eff_{data}": "efficient_convnet" for data in ("mnist", "cifar", "svhn")},
}
# Any other gets this one, as wide as brings its size so near, with the largest kernel that does.
OF_ANY_SIZE, NEAR, KERNELS, WIDEST = "convnet_avg", 0.05, (9, 7, 5, 3), 2**14


def parameters_of(recipe: Recipe, image: tuple[int, int, int], n_classes: int) -> int:
    """Count the parameters by which a network scores images; those of a decoder draw them."""
    with without_memory():
        made = create_model(recipe.model, image=image, n_classes=n_classes, **recipe.options)
    named = made.named_parameters()
    return sum(each.numel() for name, each in named if not name.startswith("decoder."))


def plain_twin(recipe: Recipe, image: tuple[int, int, int], n_classes: int) -> Recipe:
    """Choose the plain network for the same images and recipe: on the same backbone, or else one of
    at most a twentieth more parameters or fewer."""
    same = ON_THE_SAME.get(recipe.model)
    if same in MODELS and not recipe.options.get("stereo"):
        taken = MODELS[same].options
        return of_network(recipe, same, {k: v for k, v in recipe.options.items() if k in taken})
    size = parameters_of(recipe, image, n_classes)
    for kernel in KERNELS:

        def off(width: int, kernel: int = kernel) -> int:
            plain = of_network(recipe, OF_ANY_SIZE, {"kernel": kernel, "width": width})
            return parameters_of(plain, image, n_classes) - size

        try:
            above = bisect_left(range(1, WIDEST), 0, key=off) + 1
        except TorchcapsError:
            # The images are too small for two such kernels.
            continue
        width = min(max(above - 1, 1), above, key=lambda each: abs(off(each)))
        if abs(off(width)) <= NEAR * size:
            return of_network(recipe, OF_ANY_SIZE, {"kernel": kernel, "width": width})
    raise TorchcapsError(
        f"no width of {OF_ANY_SIZE} comes within {NEAR:.0%} of the {size:,} parameters of "
        f"{recipe.model}; name what to compare it with, or nothing: --against NAME, --against none."
    )


def of_network(recipe: Recipe, model: str, options: dict[str, Any]) -> Recipe:
    """Write the same recipe for another network, of which no capsules are measured."""
    kept = recipe.model_fields_set - {"measure", "measure_every"}
    fields = {name: getattr(recipe, name) for name in kept}
    return make_recipe(**{**fields, "model": model, "options": options})
