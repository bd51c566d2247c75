"""Whether images that belong together lie on both sides, as far as somebody said or names tell."""

from dataclasses import asdict
from pathlib import Path

from torchcaps.data.grouping import told_of_folder
from torchcaps.errors import TorchcapsError
from torchcaps.tasks.diagnosis import Diagnosis
from torchcaps.train.recipe import Recipe

__all__ = ["examine_groups"]


def examine_groups(recipe: Recipe, root: Path | None) -> list[Diagnosis]:
    """Of a folder of pictures, how its groups are parted; of none where names suggest none."""
    if recipe.data != "folder" or root is None:
        return []
    try:
        parted, hint = told_of_folder(root, recipe.groups)
    except TorchcapsError:
        # Test images that cannot be read are told already.
        return []
    if parted is not None:
        return [Diagnosis("groups", "fine", f"{parted}.")]
    if hint is not None:
        return [Diagnosis("groups", "look", f"{hint.text()}.", asdict(hint))]
    return []
