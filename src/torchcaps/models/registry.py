"""Names of networks, and how one is made of a name."""

import math
from collections.abc import Sequence
from typing import Any

from torch import nn

from torchcaps.errors import TorchcapsError, nearest, short
from torchcaps.layers import Routing
from torchcaps.layers.backbone import ImageTooSmall
from torchcaps.layers.routing.base import check_begun
from torchcaps.layers.routing.table import import_path
from torchcaps.models.images import Standardise
from torchcaps.models.limits import (
    check_sides,
    check_weights,
    doubt_order,
    kernel_that_fits,
    made,
    without_memory,
)
from torchcaps.models.options import (
    check_iterations,
    check_option,
    check_routing,
    check_use,
)
from torchcaps.models.preset import MODELS, Preset


def make_model(
    name: str,
    *,
    image: tuple[int, int, int] | None = None,
    n_classes: int | None = None,
    standardise: tuple[Sequence[float], Sequence[float]] | None = None,
    **options: Any,
) -> nn.Module:
    """Give what `create_model` makes; every option may be there, of use to the routing or not."""
    preset = _checked(name, options)
    image = preset.image if image is None else image
    n_classes = preset.n_classes if n_classes is None else n_classes
    check_sides(image, n_classes)
    chosen = {"image": tuple(image), "n_classes": n_classes, **options}
    try:
        _check_size(name, preset, chosen)
        model = made(preset.build, chosen)
    except ImageTooSmall as error:
        raise TorchcapsError(_too_small(error, preset, chosen)) from None
    if not isinstance(model, nn.Module):
        raise TorchcapsError(
            f"{name} must make an nn.Module, but what makes it gave {short(model)}; does it end in "
            f"return?"
        )
    check_begun(model)
    _check_free(name, model)
    if standardise is not None and preset.is_own:
        raise TorchcapsError(
            f"{name} is a network of your own, which would not look at standardise; let it "
            f"standardise its images itself, and leave standardise out."
        )
    if standardise is not None and getattr(getattr(model, "backbone", None), "normalises", False):
        raise TorchcapsError(
            f"the backbone of {name} normalises its images by the numbers that it was trained "
            f"with; leave standardise out."
        )
    if standardise is not None:
        if not isinstance(standardise, tuple | list) or len(standardise) != 2:
            raise TorchcapsError(
                f"standardise must be (means, standard deviations), with a number a channel in "
                f"both, but came as {short(standardise)}."
            )
        model.standardise = Standardise(image[0], *standardise)
        chosen["standardise"] = tuple(standardise)
    if isinstance(chosen.get("routing"), Routing):
        # In a tuple: it is no part of the network, whose layers have copies of it.
        model.given_routing = (chosen["routing"],)  # type: ignore[assignment]
        chosen["routing"] = {"class": import_path(type(chosen["routing"]))}
    model.config = {"name": name, **preset.options, **chosen}  # type: ignore[assignment]
    return model


def _check_free(name: str, model: nn.Module) -> None:
    """Refuse a network of one's own that keeps something else where its name and options go. One
    that was made by another name gets the new one."""
    config = getattr(model, "config", None)
    if config is not None and not (isinstance(config, dict) and str(config.get("name")) in MODELS):
        raise TorchcapsError(
            f"torchcaps writes into `config` of a network by what name and options it was made, "
            f"but {name} has a `config` of its own; call that otherwise, for example "
            f"self.settings."
        )


def check_options(name: str, options: dict[str, Any]) -> None:
    """Refuse what `create_model` would refuse of these options, whatever the size of the images."""
    check_use(_checked(name, options), options)


def check_made(
    name: str, options: dict[str, Any], *, image: tuple[int, int, int], n_classes: int
) -> None:
    """Refuse what `create_model` would refuse for images of this size, without any memory. A
    network of one's own may not be made so, and is looked at by its options alone."""
    preset = _checked(name, options)
    chosen = {"image": image, "n_classes": n_classes, **options}
    if preset.is_own:
        return
    try:
        _check_size(name, preset, chosen)
        with without_memory():
            made(preset.build, chosen)
    except ImageTooSmall as error:
        raise TorchcapsError(_too_small(error, preset, chosen)) from None


def _checked(name: str, options: dict[str, Any]) -> Preset:
    if not isinstance(name, str) or name not in MODELS:
        raise TorchcapsError(f"model {short(name)} is unknown; {nearest(str(name), MODELS)}.")
    preset = MODELS[name]
    for option, value in options.items():
        check_option(name, preset, option, value)
    if "routing" in preset.options:
        known = preset.options | options
        check_routing(name, preset, known["routing"], has_head=known.get("head", False))
        check_iterations(name, known["routing"], known.get("iterations"))
    return preset


def _too_small(error: ImageTooSmall, preset: Preset, chosen: dict[str, Any]) -> str:
    """Give what was found, and the option that mends it, where the network has it."""
    if doubt := doubt_order(chosen["image"]):
        return doubt
    kernel = chosen.get("kernel", preset.options.get("kernel"))
    fitting = None if kernel is None else kernel_that_fits(preset.build, chosen, kernel)
    if fitting is None:
        return f"{error.found}; use a larger image."
    return (
        f"{error.found}; use a larger image, or a smaller kernel: kernel={fitting}, on the command "
        f"line --option kernel={fitting}."
    )


def _check_size(name: str, preset: Preset, chosen: dict[str, Any]) -> None:
    """Check the size only where it may be larger than in its paper: the look costs some
    milliseconds. A network of one's own may not be made without memory."""
    if preset.is_own:
        return
    sizes = any(
        type(value) is int or (type(value) is str and not preset.words(key))
        for key, value in chosen.items()
        if key != "n_classes"
    )
    size = math.prod(chosen["image"]) * chosen["n_classes"]
    if sizes or size > math.prod(preset.image) * preset.n_classes:
        check_weights(name, preset.build, **chosen)
