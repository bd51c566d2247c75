"""Augmentation: the same for any batch, within its limits, anew in every epoch."""

from dataclasses import dataclass

import pytest
import torch

from laid_images import (
    assert_drawn_between,
    chi_square,
    labelled,
    map_of_spots,
    noise,
    planes_of_spots,
)
from torchcaps.data import Batch, ImageSet
from torchcaps.data.shown.augment import AUGMENTATIONS, augmented

# Of the others, two parts of an image no longer sum to it, and pixels may leave their range.
MOVES = sorted(set(AUGMENTATIONS) - {"light", "flip-light", "even-light"})


def dots(count: int, side: int = 28) -> ImageSet:
    """Each image one white pixel, in the middle of an odd frame."""
    images = torch.zeros(count, 1, side + 1, side + 1)
    images[:, :, side // 2, side // 2] = 1
    return labelled("dots", images)


@pytest.mark.parametrize(
    ("name", "most", "flips"),
    [("shift2", 2, False), ("shift2-flip", 2, True), ("crop4-flip", 4, True)],
)
def test_shifts_are_whole_even_and_within_their_limit(name: str, most: int, flips: bool) -> None:
    plain = dots(4000)
    # A second dot to the right tells a mirrored image.
    plain.images[:, :, 14, 17] = 0.5
    pixels = augmented(plain, name).batch(slice(None)).pixels
    where = (pixels == 1).nonzero()
    assert len(where) == 4000
    assert ((pixels != 0).flatten(1).sum(1) == 2).all()
    rows, columns = where[:, 2] - 14, where[:, 3] - 14
    mirrored = pixels[torch.arange(4000), 0, where[:, 2], (where[:, 3] - 3).clamp(min=0)] == 0.5
    assert bool(mirrored.any()) == flips
    if flips:
        # Standard deviation 32.
        assert abs(int(mirrored.sum()) - 2000) < 128
    shares = torch.zeros(2 * most + 1, 2 * most + 1)
    shares.index_put_((rows + most, columns + most), torch.ones(()), accumulate=True)
    degrees = shares.numel() - 1
    assert abs(chi_square(shares, 4000 / shares.numel()) - degrees) < 4 * (2 * degrees) ** 0.5


@pytest.mark.parametrize("side", [56, 84])
def test_limits_of_the_affine_map_are_found_in_the_pixels(side: int) -> None:
    reach, farthest = side // 4, 2.5 / 28 * (side + 1)
    plain = labelled("spots", planes_of_spots(side + 1, reach).expand(400, -1, -1, -1))
    moved = augmented(plain, "affine", seed=3).batch(slice(None)).pixels
    found = map_of_spots(moved, reach)
    limits = {"rotation": (-15, 15), "shear": (-0.1, 0.1), "scale_x": (0.9, 1.1)}
    limits |= {"scale_y": (0.9, 1.1), "shift_x": (-farthest, farthest)}
    limits |= {"shift_y": (-farthest, farthest)}
    for name, (low, high) in limits.items():
        assert_drawn_between(found[name], low, high, reach=0.05)
    # The axes are stretched on their own.
    assert abs(torch.corrcoef(torch.stack([found["scale_x"], found["scale_y"]]))[0, 1]) < 0.2


@dataclass(frozen=True)
class Paired(ImageSet):
    """Images that are the sum of two parts."""

    def batch(self, index, epoch=0):
        pixels = self.pixels(index)
        return Batch(pixels, self.labels[index], torch.stack([pixels * 0.25, pixels * 0.75], 1))


@pytest.mark.parametrize("name", MOVES)
def test_parts_move_with_their_image(name: str) -> None:
    plain = noise(20, channels=2)
    paired = Paired(plain.name, plain.images, plain.labels, plain.class_names)
    batch = augmented(paired, name, seed=1).batch(slice(None), epoch=1)
    assert torch.equal(batch.pixels, augmented(plain, name, seed=1).batch(slice(None), 1).pixels)
    assert batch.parts.shape == (20, 2, 2, 12, 12)
    torch.testing.assert_close(batch.parts[:, 0] + batch.parts[:, 1], batch.pixels)


@pytest.mark.parametrize(
    ("name", "brightness", "contrast"), [("light", 0.35, 0.5), ("flip-light", 0.25, 0.8)]
)
def test_light_is_one_shift_and_one_factor_an_image(
    name: str, brightness: float, contrast: float
) -> None:
    plain = noise(600, channels=2, side=7)
    before = plain.pixels(slice(None)).double()
    found = augmented(plain, name, seed=2).batch(slice(None), epoch=1).pixels.double()
    assert found.min() < 0
    assert found.max() > 1
    mean = before.mean((2, 3), keepdim=True)
    shift = (found - before).mean((2, 3))
    # All channels are lit alike.
    assert (shift[:, 0] - shift[:, 1]).abs().max() < 2e-4
    factor = found[:, 0].std((1, 2)) / before[:, 0].std((1, 2))
    relit = mean + shift[:, :, None, None] + (before - mean) * factor[:, None, None, None]
    mirrored = (
        mean + shift[:, :, None, None] + (before.flip(-1) - mean) * factor[:, None, None, None]
    )
    error = [(found - each).abs().flatten(1).amax(1) for each in (relit, mirrored)]
    flips = error[1] < error[0]
    assert torch.minimum(*error).max() < 1e-3
    # Standard deviation 12.
    assert abs(int(flips.sum()) - 300) < 50 if "flip" in name else not flips.any()
    for drawn, centre, reach in ((shift[:, 0], 0, brightness), (factor, 1, contrast)):
        low, high = float(drawn.min()), float(drawn.max())
        assert centre - 1.02 * reach < low < centre - 0.95 * reach
        assert centre + 0.95 * reach < high < centre + 1.02 * reach
        # The mean of an even draw has deviation 2 * reach / sqrt(12 * 600).
        assert abs(float(drawn.mean()) - centre) < 4 * 2 * reach / (12 * 600) ** 0.5


def test_light_keeps_the_mean_of_an_image_at_its_shift_and_lights_parts_too() -> None:
    images = labelled("flat", torch.full((9, 1, 3, 3), 0.5), 3)
    pixels = augmented(images, "light", seed=1).batch(slice(None)).pixels
    assert torch.equal(pixels, pixels[:, :, :1, :1].expand_as(pixels))
    assert pixels[:, 0, 0, 0].unique().numel() == 9
    pairs = Paired(images.name, images.images, images.labels, images.class_names)
    batch = augmented(pairs, "light", seed=1).batch(slice(None))
    torch.testing.assert_close(batch.pixels, pixels)
    torch.testing.assert_close(batch.parts[:, 0] - 0.125, batch.pixels - 0.5)


def test_even_light_is_what_code_of_peer2022_standardises_one_by_one() -> None:
    side = 7
    images = noise(20, channels=2, side=side)
    # Each as bright as it happens to be; the fourth and the fifth are of one brightness.
    images.images.div_(torch.arange(1, 21)[:, None, None, None], rounding_mode="floor")
    images.images[3], images.images[4] = 0, 178
    before = images.pixels(slice(None)).double().numpy()
    found = augmented(images, "even-light", seed=1).batch(slice(None), epoch=2).pixels
    # As tensorflow.image.per_image_standardization says it does, all channels as one.
    for image, even in zip(before, found.double().numpy(), strict=True):
        deviation = max(image.std(), 1 / (2 * side * side) ** 0.5)
        assert abs((even - 0.1325) / 0.3105 - (image - image.mean()) / deviation).max() < 1e-4
    assert torch.equal(found[3:5], torch.full((2, 2, side, side), 0.1325))
    assert torch.equal(augmented(images, "even-light").batch(torch.tensor([7])).pixels, found[7:8])
