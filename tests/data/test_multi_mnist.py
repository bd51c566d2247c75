"""MultiMNIST: two classes, one split, and the pixels of both digits."""

from dataclasses import replace

import pytest
import torch

from laid_images import blocks, chi_square, levels, noise
from torchcaps.data import ImageSet
from torchcaps.data.make.multi_mnist import MultiMnist


def unequal(count: int, classes: int = 4) -> ImageSet:
    """Blocks of classes of unequal size."""
    base = blocks(count, rim=1, side=6, n_classes=classes)
    return replace(base, labels=torch.arange(count).sqrt().long() % classes)


def test_partners_are_of_another_class_and_all_of_them_as_likely() -> None:
    base = unequal(30)
    batch = MultiMnist(base, copies=2000).batch(slice(None))
    assert batch.labels.shape == (60_000, 2)
    assert (batch.labels[:, 0] != batch.labels[:, 1]).all()
    first, second = levels(batch.parts).unbind(1)
    assert torch.equal(base.labels[torch.stack([first, second], 1)], batch.labels)
    assert torch.equal(first, torch.arange(30).repeat(2000))
    for digit in range(30):
        others = (base.labels != base.labels[digit]).nonzero()[:, 0]
        counts = torch.bincount(second[first == digit], minlength=30).double()
        assert int(counts[others].sum()) == 2000
        degrees = len(others) - 1
        found = chi_square(counts[others], 2000 / len(others))
        assert abs(found - degrees) < 4.5 * (2 * degrees) ** 0.5


def test_each_digit_is_shifted_by_four_pixels_at_most_all_shifts_alike() -> None:
    parts = MultiMnist(unequal(30), copies=500).batch(slice(None)).parts
    assert parts.shape == (15_000, 2, 1, 14, 14)
    ink = parts[:, :, 0] > 0
    assert (ink.flatten(2).sum(2) == 16).all()
    row, column = (ink.any(3 - axis).int().argmax(2) - 1 for axis in (0, 1))
    place = row * 9 + column
    for which in (0, 1):
        counts = torch.bincount(place[:, which], minlength=81).double()
        assert len(counts) == 81
        # 80 degrees: standard deviation 12.6.
        assert abs(chi_square(counts, 15_000 / 81) - 80) < 4 * 12.6
    # Both digits of an image move on their own.
    both = torch.stack([row[:, 0], row[:, 1], column[:, 0], column[:, 1]]).double()
    assert (torch.corrcoef(both) - torch.eye(4)).abs().max() < 4 / 15_000**0.5


@pytest.mark.parametrize("overlay", ["clip", "max"])
def test_the_image_is_made_of_its_parts(overlay: str) -> None:
    base = noise(40, channels=3, side=6)
    batch = MultiMnist(base, overlay=overlay, shift=1).batch(slice(None))
    first, second = batch.parts.unbind(1)
    both = (first + second).clamp(max=1) if overlay == "clip" else torch.maximum(first, second)
    assert torch.equal(batch.pixels, both)
    assert (first + second).max() > 1
    # Each part is an image of the base, whole.
    for part, label in zip(batch.parts[5], batch.labels[5], strict=True):
        windows = part.unfold(1, 6, 1).unfold(2, 6, 1).permute(1, 2, 0, 3, 4).reshape(-1, 3, 6, 6)
        alike = (base.pixels(slice(None))[:, None] == windows).flatten(2).all(2).any(1)
        assert base.labels[alike].tolist() == [int(label)]


def test_the_name_and_the_frame() -> None:
    images = MultiMnist(unequal(30), copies=3)
    assert (images.name, images.image_shape, len(images)) == ("multi-blocks", (1, 14, 14), 90)


def test_the_two_highest_scores_judge_held_out_images_too() -> None:
    images = MultiMnist(unequal(30))
    assert images.base.judged_by == "class"
    assert [each.judged_by for each in (images, *images.hold_out())] == ["top"] * 3


def test_a_class_without_images_is_no_partner() -> None:
    base = unequal(30, classes=2)
    named = ImageSet("named", base.images, base.labels * 2, ("a", "nobody", "b"))
    labels = MultiMnist(named).batch(slice(None)).labels
    assert set(map(tuple, labels.tolist())) == {(0, 2), (2, 0)}
