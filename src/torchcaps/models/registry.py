"""Names of networks, and how one is made of a name."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from torchcaps.errors import TorchcapsError, nearest
from torchcaps.models.capsnet import capsnet
from torchcaps.models.mitterreiter import mitterreiter_5x16

__all__ = ["MODELS", "Preset", "create_model", "list_models"]


@dataclass(frozen=True)
class Preset:
    """A named network: its maker, the image and classes it has in its paper, and where that is."""

    build: Callable[..., nn.Module]
    image: tuple[int, int, int]
    n_classes: int
    source: str

    @property
    def options(self) -> dict[str, Any]:
        """What may be set, with its default."""
        parameters = inspect.signature(self.build).parameters.values()
        return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


MODELS: dict[str, Preset] = {
    "capsnet": Preset(capsnet, (1, 28, 28), 10, "sabour2017; gu2021 §3; renzulli2025 §4.2"),
    "mitterreiter_5x16": Preset(
        mitterreiter_5x16, (1, 40, 40), 10, "mitterreiter2023 §4.1; renzulli2025 B.1"
    ),
}


def list_models() -> list[str]:
    """The names that `create_model` knows."""
    return sorted(MODELS)


def create_model(
    name: str,
    *,
    image: tuple[int, int, int] | None = None,
    n_classes: int | None = None,
    **options: Any,
) -> nn.Module:
    """Make a named network for images (channels, height, width), any size, any class count.

    Without `image` and `n_classes` it is the one of its paper. `options` are those of the network;
    its `config` attribute holds all that was chosen, and `save` writes it down.

    >>> create_model("capsnet", image=(3, 64, 48), n_classes=7)
    """
    if name not in MODELS:
        raise TorchcapsError(f"model {name!r} is unknown; {nearest(name, MODELS)}.")
    preset = MODELS[name]
    for option, value in options.items():
        _check_option(name, preset, option, value)
    image = preset.image if image is None else image
    n_classes = preset.n_classes if n_classes is None else n_classes
    if not isinstance(image, tuple | list) or len(image) != 3 or not all(map(_is_count, image)):
        raise TorchcapsError(
            f"image must be (channels, height, width), three whole numbers from 1, but came as "
            f"{image!r}."
        )
    if not _is_count(n_classes):
        raise TorchcapsError(f"n_classes must be a whole number from 1, but came as {n_classes!r}.")
    chosen = {"image": tuple(image), "n_classes": n_classes, **options}
    model = preset.build(**chosen)
    # nn.Module types every attribute as a tensor or a module.
    model.config = {"name": name, **preset.options, **chosen}  # type: ignore[assignment]
    return model


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1


def _check_option(name: str, preset: Preset, option: str, value: Any) -> None:
    if option not in preset.options:
        raise TorchcapsError(f"{name} has no option {option!r}; {nearest(option, preset.options)}.")
    default = preset.options[option]
    # A whole number is a fine float; True is no number here.
    fits = type(value) is type(default) or (type(default) is float and type(value) is int)
    if not fits:
        raise TorchcapsError(
            f"{name} takes {option} as {type(default).__name__}, for example {default!r}, but it "
            f"came as {value!r}."
        )
