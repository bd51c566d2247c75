"""Resizing: a mean of what is covered, as torch's own, the same bit for bit in any batch."""

import pytest
import torch
from torch.nn.functional import interpolate

from laid_images import noise
from torchcaps.data import (
    ImageSet,
    MultiMnist,
    PartWholeSpec,
    part_whole,
    resized,
    shown_parts,
)
from torchcaps.data.shown.resize import Resized, resize

SIZES = [
    ((32, 32), (24, 24)),
    ((96, 96), (48, 64)),
    ((32, 32), (64, 64)),
    ((40, 20), (7, 33)),
    ((5, 5), (1, 1)),
    ((1, 1), (4, 3)),
]


@pytest.mark.parametrize(("before", "after"), SIZES)
def test_it_agrees_with_torch(before, after):
    pixels = torch.rand(3, 2, *before, dtype=torch.float64)
    expected = interpolate(pixels, after, mode="bilinear", antialias=True, align_corners=False)
    torch.testing.assert_close(resize(pixels, after), expected, rtol=0, atol=1e-12)


def test_halving_weighs_pixels_by_a_triangle():
    # Pixel 1 of two has its centre at 2.5 of four old ones, and reaches two old pixels either way.
    found = resize(torch.tensor([[[[0.0, 0.0, 1.0, 0.0]]]]), (1, 2))
    torch.testing.assert_close(found, torch.tensor([[[[1 / 7, 3 / 7]]]]))


def test_images_in_memory_stay_bytes_and_keep_what_is_known_of_them():
    images = noise(channels=2)
    images.facts["azimuth"] = torch.arange(20)
    found = resized(images, (7, 30))
    assert isinstance(found, ImageSet)
    assert found.images.dtype == torch.uint8
    assert found.image_shape == (2, 7, 30)
    assert torch.equal(found.facts["azimuth"], torch.arange(20))
    assert torch.equal(found.labels, images.labels)
    plain = resize(images.pixels(slice(None)), (7, 30))
    assert (found.pixels(slice(None)) - plain).abs().max() < 0.5 / 255 + 1e-6
    assert resized(images, (12, 12)) is images


def test_floats_stay_in_their_range():
    images = ImageSet("white", torch.ones(2, 1, 9, 9), torch.zeros(2).long(), ("a", "b"))
    found = resized(images, (40, 5))
    assert found.images.dtype == torch.float32
    assert found.images.max() <= 1


def test_more_images_than_are_resized_at_once_all_come_out(monkeypatch):
    monkeypatch.setattr("torchcaps.data.shown.resize.AT_ONCE", 3)
    images = noise(8, channels=2)
    expected = [resized(images.take(torch.tensor([n])), (5, 5)).images for n in range(8)]
    assert torch.equal(resized(images, (5, 5)).images, torch.cat(expected))


def test_made_images_are_resized_when_they_are_made_with_their_parts():
    digits = noise()
    made = MultiMnist(digits, shift=2)
    found = resized(made, (24, 10))
    assert found.image_shape == (1, 24, 10)
    batch = found.batch(torch.tensor([5, 3]), epoch=4)
    plain = made.batch(torch.tensor([5, 3]), epoch=4)
    assert torch.equal(batch.pixels, resize(plain.pixels, (24, 10)))
    assert batch.parts.shape == (2, 2, 1, 24, 10)
    assert torch.equal(batch.parts[:, 1], resize(plain.parts[:, 1], (24, 10)))
    assert torch.equal(batch.labels, plain.labels)
    assert found.judged_by == "top"
    rest, held = found.hold_out(share=0.2, seed=1)
    assert (len(rest), len(held), rest.image_shape) == (16, 4, (1, 24, 10))


def test_parts_stay_known_and_their_pixels_do_not():
    images = part_whole("test", 5, spec=PartWholeSpec(size=24))
    truth = resized(images, (12, 16)).truth
    assert torch.equal(shown_parts(truth), shown_parts(images.truth))
    assert resized(resized(images, (12, 16)), (24, 24)).truth.size is None


def test_images_that_would_not_fit_again_are_resized_when_they_are_shown(monkeypatch):
    images = noise(9, channels=2)
    expected = resized(images, (20, 20)).pixels(slice(None))
    monkeypatch.setattr("torchcaps.data.shown.resize.MOST_BYTES", 9 * 2 * 400 - 1)
    found = resized(images, (20, 20))
    assert isinstance(found, Resized)
    assert torch.equal(found.labels, images.labels)
    # Nothing is rounded to bytes.
    assert (found.batch(slice(None)).pixels - expected).abs().max() < 0.5 / 255 + 1e-6
