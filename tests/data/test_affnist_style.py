"""Images under affine maps: their limits, measured back from the pixels, and the frame."""

import pytest
import torch

from laid_images import assert_drawn_between, labelled, map_of_spots, planes_of_spots
from torchcaps.data import ImageSet
from torchcaps.data.make import affnist_style
from torchcaps.data.make.affnist_style import AffineRanges, AffnistStyle
from torchcaps.data.warp import warp

LEVER = 6
COUNT = 1000


def spots() -> ImageSet:
    """As bytes, like ink."""
    images = (planes_of_spots(28, LEVER) * 255).round().to(torch.uint8)
    return labelled("spots", images.expand(COUNT, -1, -1, -1))


def measured(pixels):
    return map_of_spots(pixels, LEVER)


def assert_even(found, low, high) -> None:
    """Between the limits, near to both, and with the moments of an even draw."""
    assert_drawn_between(found, low, high)
    width = high - low
    assert abs(found.std() - width / 12**0.5) < 0.03 * width


@pytest.mark.parametrize(("ranges", "shear"), [("official", 0.2), ("gu", 1.0)])
def test_the_limits_are_found_in_the_pixels(ranges: str, shear: float) -> None:
    found = measured(AffnistStyle(spots(), ranges=ranges).batch(slice(None)).pixels)
    assert_even(found["rotation"], -20, 20)
    assert_even(found["shear"], -shear, shear)
    assert_even(found["scale_x"], 0.8, 1.2)
    assert_even(found["scale_y"], 0.8, 1.2)
    drawn = torch.stack([found[name] for name in ("rotation", "shear", "scale_x", "scale_y")])
    mixed = torch.corrcoef(drawn) - torch.eye(4)
    # Four standard deviations of the correlation of independent draws.
    assert mixed.abs().max() < 4 / COUNT**0.5


def blobs(count: int) -> ImageSet:
    """Ink in 20 x 20 of 28 x 28 pixels, as in MNIST, of any form."""
    images = torch.zeros(count, 1, 28, 28, dtype=torch.uint8)
    ink = torch.rand(count, 1, 20, 20) < torch.rand(count, 1, 1, 1) * 0.1
    images[:, :, 4:24, 4:24] = ink * torch.randint(1, 256, ink.shape)
    return labelled("own", images)


def ink_outside(images, monkeypatch):
    """How much ink of each image lies beyond its frame, drawn on a frame larger by 15 all around,
    which no ink leaves; and the images drawn."""

    def larger(pixels, maps, size):
        return warp(pixels, maps, (size[0] + 30, size[1] + 30))

    monkeypatch.setattr(affnist_style, "warp", larger)
    pixels = images.batch(slice(None)).pixels
    inside = pixels[:, :, 15:-15, 15:-15].clone()
    pixels[:, :, 15:-15, 15:-15] = 0
    assert inside.shape[1:] == images.image_shape
    return pixels.sum((1, 2, 3)), inside


def test_official_digits_stay_in_the_frame_whole(monkeypatch) -> None:
    lost, inside = ink_outside(AffnistStyle(blobs(COUNT)), monkeypatch)
    assert lost.max() < 1e-4
    # And the frame is used to its rim.
    assert (inside[:, :, 0] > 0).any()
    assert (inside[:, :, :, -1] > 0).any()


def test_gu_digits_stay_in_the_frame_where_it_can_hold_them(monkeypatch) -> None:
    lost, inside = ink_outside(AffnistStyle(blobs(COUNT), ranges="gu"), monkeypatch)
    # Ink up to the corners of its square, leant by 45 degrees, may be wider than the frame.
    assert (lost > 1e-4).double().mean() < 0.1
    assert (lost / (lost + inside.sum((1, 2, 3)))).nan_to_num().max() < 0.2


def test_gu_shifts_by_eight_pixels_at_most() -> None:
    # A spot small enough to stay in the frame wherever it is shifted to.
    x = torch.arange(28) - 13.5
    spot = torch.exp(-(x**2 + x[:, None] ** 2) / 4.5)
    images = (spot * 255).round().to(torch.uint8).expand(COUNT, 3, 28, 28)
    found = measured(AffnistStyle(labelled("own", images), ranges="gu").batch(slice(None)).pixels)
    assert_even(found["shift_x"], -8, 8)
    assert_even(found["shift_y"], -8, 8)
    assert abs(torch.corrcoef(torch.stack([found["shift_x"], found["shift_y"]]))[0, 1]) < 0.13


def test_official_shifts_reach_every_place_inside_the_frame() -> None:
    pixels = AffnistStyle(spots(), ranges="official").batch(slice(None)).pixels
    ink = (pixels > 0).any(1)
    for seen in (ink.any(1), ink.any(2)):
        before = seen.int().argmax(1).double()
        after = seen.flip(1).int().argmax(1).double()
        share = before / (before + after)
        assert share.min() < 0.05
        assert share.max() > 0.95
        assert abs(share.mean() - 0.5) < 4 / (12 * COUNT) ** 0.5


def test_the_ink_may_lie_anywhere_in_the_image() -> None:
    # A block in the upper right corner is moved into the frame like any other.
    images = torch.zeros(COUNT, 1, 28, 28, dtype=torch.uint8)
    images[:, :, :6, 20:] = 255
    for ranges in ("official", "gu"):
        pixels = AffnistStyle(labelled("own", images), ranges=ranges).batch(slice(None)).pixels
        mass = pixels.sum((1, 2, 3))
        assert mass.min() > 48 * 0.64 * 0.98
        assert mass.max() < 48 * 1.44 * 1.02


def test_an_image_too_large_for_its_frame_is_put_in_the_middle() -> None:
    images = torch.full((50, 1, 28, 28), 255, dtype=torch.uint8)
    own = AffineRanges(rotation=0, shear=0, scale=(2, 2), shift=None)
    pixels = AffnistStyle(labelled("own", images), ranges=own).batch(slice(None)).pixels
    assert torch.equal(pixels, torch.ones(50, 1, 40, 40))
    gentle = AffineRanges(rotation=0, shear=0, scale=(1.5, 1.5), shift=None)
    narrow = torch.zeros(50, 1, 28, 28, dtype=torch.uint8)
    narrow[:, :, :, 10:] = 255
    pixels = AffnistStyle(labelled("own", narrow), ranges=gentle).batch(slice(None)).pixels
    # 42 rows into 40: as many are cut above as below. 27 columns lie somewhere in the frame.
    torch.testing.assert_close(pixels[:, 0, :, 20], pixels[:, 0].flip(1)[:, :, 20])
    assert ((pixels.sum((1, 2, 3)) - 40 * 27).abs() < 1e-2).all()


def test_a_black_image_stays_black() -> None:
    images = AffnistStyle(labelled("own", torch.zeros(3, 1, 28, 28)))
    assert torch.equal(images.batch(slice(None)).pixels, torch.zeros(3, 1, 40, 40))


def test_without_a_map_an_image_is_centred_exactly() -> None:
    base = labelled("own", torch.rand(4, 2, 28, 28))
    still = AffineRanges(rotation=0, shear=0, scale=(1, 1), shift=0)
    pixels = AffnistStyle(base, ranges=still).batch(slice(None)).pixels
    expected = torch.zeros(4, 2, 40, 40)
    expected[:, :, 6:34, 6:34] = base.images
    assert torch.equal(pixels, expected)


def test_the_name_and_the_shape() -> None:
    images = AffnistStyle(spots(), copies=32)
    assert (images.name, images.image_shape) == ("affnist-style-spots", (3, 40, 40))
    assert len(images) == 32 * COUNT
