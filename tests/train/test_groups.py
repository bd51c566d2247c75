"""Runs on images with groups: none is trained on and tested too, and the result counts them."""

import importlib

import torch

from torchcaps.data import ImageSet
from torchcaps.train import make_recipe

# The package has a function of this name.
FIT = importlib.import_module("torchcaps.train.fit")


def patients(first: int, count: int) -> ImageSet:
    """Three pictures of each patient, who shows one class."""
    number = torch.arange(3 * count) // 3
    groups = tuple(f"p{first + each}" for each in number.tolist())
    pixels = torch.rand(3 * count, 1, 20, 20, generator=torch.Generator().manual_seed(first))
    return ImageSet("patients", pixels, number % 2, ("benign", "malignant"), groups=groups)


def recipe(**changed):
    fields = {"model": "mitterreiter_5x16", "data": "own", "epochs": 1, "batch_size": 16}
    return make_recipe(**{"options": {"decoder": False}} | fields | changed)


def test_images_that_are_trained_on_are_measured_without_regard_to_groups() -> None:
    """Two groups of one class each, of which none could be held out."""
    both = patients(0, 2)
    training, measured = FIT._parted(recipe(validation_share=0.0), both)
    assert training is both
    assert len(measured) == 6
