"""The published files themselves, where TORCHCAPS_DATA names the folder that holds them."""

import hashlib
import os
from pathlib import Path

import pytest
import torch

from error_text import text_of
from torchcaps.data import PUBLISHED, ImageSet, check_images, load
from torchcaps.data.make import affnist_style
from torchcaps.data.warp import warp

pytestmark = pytest.mark.data

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
OF_MNIST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@pytest.fixture(scope="module")
def real() -> Path:
    found = os.environ.get("TORCHCAPS_DATA")
    if found is None:
        pytest.skip("TORCHCAPS_DATA is not set; it names the folder of MNIST/raw and others")
    return Path(found)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_published_sums_are_those_of_the_real_files(real, name):
    for file in PUBLISHED[name].files:
        content = (real / file.path).read_bytes()
        assert (hashlib.sha256(content).hexdigest(), len(content)) == (file.sha256, file.size)


# Means and deviations are those that everybody normalises by.
@pytest.mark.parametrize(
    ("name", "first", "of_test", "mean", "std", "shared", "copies"),
    [
        ("mnist", [5, 0, 4, 1, 9, 2, 1, 3, 1, 4], OF_MNIST, [0.1307], [0.3081], 0, 0),
        (
            "fashion-mnist",
            [9, 0, 0, 3, 0, 2, 7, 2, 5, 5],
            *([1_000] * 10, [0.2860], [0.3530], 0, 0),
        ),
        ("cifar10", [6, 9, 9, 4], [1_000] * 10, [0.4914, 0.4822, 0.4465], None, 0, 0),
        # The published set has copies.
        ("cifar100", [], [100] * 100, [0.5071, 0.4865, 0.4409], None, 10, 14),
    ],
)
def test_a_set_is_the_one_that_everybody_counts(
    real, name, first, of_test, mean, std, shared, copies
):
    train, test = (load(name, split=split, root=real) for split in ("train", "test"))
    assert (len(train), len(test)) == (60_000 if "mnist" in name else 50_000, 10_000)
    assert train.image_shape == ((1, 28, 28) if "mnist" in name else (3, 32, 32))
    assert torch.bincount(test.labels).tolist() == of_test
    if name != "mnist":
        even = len(train) // len(of_test)
        assert torch.bincount(train.labels).tolist() == [even] * len(of_test)
    assert train.labels[: len(first)].tolist() == first
    found = check_images(train, test)
    assert found.train.mean == pytest.approx(mean, abs=5e-5)
    assert std is None or found.train.std == pytest.approx(std, abs=5e-5)
    assert (found.shared, found.train.copies) == (shared, copies)
    if name == "cifar10":
        assert [train.class_names[label] for label in first] == ["frog", "truck", "truck", "deer"]


def test_labels_of_the_other_set_are_told(real):
    wrong = real / "FashionMNIST" / "raw"
    wrong = wrong if wrong.is_dir() else real / "fashion_mnist"
    said = text_of(lambda: load("mnist", root=wrong))
    assert "are the labels of fashion-mnist, not of mnist;" in said


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(("split", "count"), [("train", 60_000), ("test", 10_000)])
def test_every_name_gives_its_images(real, name: str, split, count: int) -> None:
    images = load(name, split=split, root=real)
    side, several = SETS[name]
    pixels, labels, parts = images.batch(torch.arange(0, count, 1000))
    partners = int(name.rpartition("-")[2]) if name in PARTNERS and split == "train" else 1
    assert len(images) == count * partners
    assert images.image_shape == (1, side, side)
    assert pixels.shape == (count // 1000, 1, side, side)
    assert list(labels.shape[1:]) == several
    assert (parts is not None) == bool(several)
    assert (pixels.flatten(1).sum(1) > 0).all()


@pytest.mark.parametrize(("name", "share"), [("affnist-style", 0.0), ("affnist-style-gu", 0.01)])
def test_digits_stay_in_the_frame(real, monkeypatch, name: str, share: float) -> None:
    images = load(name, split="test", root=real)

    def larger(pixels, maps, size):
        return warp(pixels, maps, (size[0] + 60, size[1] + 60))

    monkeypatch.setattr(affnist_style, "warp", larger)
    cut = 0
    for index in torch.arange(3000).split(1000):
        pixels = images.batch(index).pixels
        pixels[:, :, 30:-30, 30:-30] = 0
        cut += int((pixels.sum((1, 2, 3)) > 1e-4).sum())
    assert cut <= share * 3000


def test_expanded_test_digits_are_those_of_mnist(real) -> None:
    digits = load("mnist", split="test", root=real)
    assert isinstance(digits, ImageSet)
    pixels = load("expanded-mnist", split="test", root=real).batch(slice(0, 500)).pixels
    assert torch.equal(pixels[:, :, 6:34, 6:34], digits.pixels(slice(0, 500)))
    pixels[:, :, 6:34, 6:34] = 0
    assert not pixels.any()
