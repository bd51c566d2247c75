"""Trained networks that come with the package, in zoo/: for each NAME its weights, its recipe, and
its card, which says what it was trained on and what it gets right; in zoo/images/ test images of
those sets whose licence allows it. Read without torch."""

from pathlib import Path
from typing import Any

from torchcaps._json import read_json
from torchcaps.errors import TorchcapsError, nearest, short

FOLDER = Path(__file__).with_name("zoo")
PREFIX = "zoo:"


def zoo_names() -> list[str]:
    """List their names, each that of a model, a dot and a tag."""
    return sorted(path.stem for path in FOLDER.glob("*.safetensors"))


def zoo_weights(name: str) -> Path:
    """Give the file of one of them."""
    if name not in zoo_names():
        raise TorchcapsError(
            f"no trained network {short(name)} comes with torchcaps; {nearest(name, zoo_names())}."
        )
    return FOLDER / f"{name}.safetensors"


def zoo_card(weights: Path) -> dict[str, Any]:
    """Give what is known of the network of a file; of one that is not of the zoo nothing."""
    if weights.parent != FOLDER:
        return {}
    found: dict[str, Any] = read_json(weights.with_suffix(".json"))
    return found


def zoo_images(data: str) -> Path | None:
    """Find the test images of a data set that come with the package; of most sets none do."""
    path = FOLDER / "images" / f"{data}.npz"
    return path if path.is_file() else None
