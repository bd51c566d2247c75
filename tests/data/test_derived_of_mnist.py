"""The made sets by their names, over the real digits."""

import os

import pytest
import torch

from torchcaps.data import ImageSet, load
from torchcaps.data.make import affnist_style
from torchcaps.data.warp import warp

SETS = {
    "affnist-style": (40, []),
    "affnist-style-gu": (40, []),
    "diverse-multi-mnist": (36, [2]),
    "expanded-mnist": (40, []),
    "multi-mnist": (36, [2]),
    "multi-mnist-10": (36, [2]),
    "multi-mnist-100": (36, [2]),
    "multi-mnist-1000": (36, [2]),
}
PARTNERS = {"multi-mnist-10", "multi-mnist-100", "multi-mnist-1000"}


@pytest.fixture(scope="module")
def root() -> str:
    found = os.environ.get("TORCHCAPS_DATA")
    if found is None:
        pytest.skip("TORCHCAPS_DATA is not set; it names the folder that holds MNIST/raw")
    return found


@pytest.mark.data
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(("split", "count"), [("train", 60_000), ("test", 10_000)])
def test_every_name_gives_its_images(root, name: str, split, count: int) -> None:
    images = load(name, split=split, root=root)
    side, several = SETS[name]
    pixels, labels, parts = images.batch(torch.arange(0, count, 1000))
    partners = int(name.rpartition("-")[2]) if name in PARTNERS and split == "train" else 1
    assert len(images) == count * partners
    assert images.image_shape == (1, side, side)
    assert pixels.shape == (count // 1000, 1, side, side)
    assert list(labels.shape[1:]) == several
    assert (parts is not None) == bool(several)
    assert (pixels.flatten(1).sum(1) > 0).all()


@pytest.mark.data
@pytest.mark.parametrize(("name", "share"), [("affnist-style", 0.0), ("affnist-style-gu", 0.01)])
def test_digits_stay_in_the_frame(root, monkeypatch, name: str, share: float) -> None:
    images = load(name, split="test", root=root)

    def larger(pixels, maps, size):
        return warp(pixels, maps, (size[0] + 60, size[1] + 60))

    monkeypatch.setattr(affnist_style, "warp", larger)
    cut = 0
    for index in torch.arange(3000).split(1000):
        pixels = images.batch(index).pixels
        pixels[:, :, 30:-30, 30:-30] = 0
        cut += int((pixels.sum((1, 2, 3)) > 1e-4).sum())
    assert cut <= share * 3000


@pytest.mark.data
def test_expanded_test_digits_are_those_of_mnist(root) -> None:
    digits = load("mnist", split="test", root=root)
    assert isinstance(digits, ImageSet)
    pixels = load("expanded-mnist", split="test", root=root).batch(slice(0, 500)).pixels
    assert torch.equal(pixels[:, :, 6:34, 6:34], digits.pixels(slice(0, 500)))
    pixels[:, :, 6:34, 6:34] = 0
    assert not pixels.any()
