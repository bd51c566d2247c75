"""Expanded images: whole, anywhere in the frame, all places alike."""

import torch

from laid_images import chi_square, labelled
from torchcaps.data import ImageSet
from torchcaps.data.make.expanded import Expanded


def full(count: int, height: int = 28, width: int = 28) -> ImageSet:
    """No black pixel: the image's own frame can be seen."""
    images = torch.randint(1, 256, (count, 1, height, width), dtype=torch.uint8)
    return labelled("full", images)


def corners(pixels):
    """Where the ink of each image begins, (row, column), and that it fills one rectangle."""
    ink = pixels[:, 0] > 0
    rows, columns = ink.any(2), ink.any(1)
    assert torch.equal(ink, rows[:, :, None] & columns[:, None, :])
    return rows.int().argmax(1), columns.int().argmax(1)


def test_every_place_inside_the_frame_is_as_likely() -> None:
    base = full(20)
    images = Expanded(base, copies=500)
    pixels = images.batch(slice(None)).pixels
    assert pixels.shape == (10_000, 1, 40, 40)
    row, column = corners(pixels)
    counts = torch.bincount(row * 13 + column, minlength=169).double()
    assert len(counts) == 169
    # 168 degrees: mean 168, standard deviation 18.3.
    assert abs(chi_square(counts, 10_000 / 169) - 168) < 4 * 18.3
    for n in range(0, 10_000, 371):
        found = pixels[n, :, row[n] : row[n] + 28, column[n] : column[n] + 28]
        assert torch.equal(found, base.pixels(slice(None))[n % 20])


def test_a_centred_image_is_padded_alike_on_all_sides() -> None:
    base = full(5)
    pixels = Expanded(base, placement="centred").batch(slice(None), epoch=3).pixels
    expected = torch.zeros(5, 1, 40, 40)
    expected[:, :, 6:34, 6:34] = base.pixels(slice(None))
    assert torch.equal(pixels, expected)


def test_an_image_need_not_be_square_nor_smaller_than_its_frame() -> None:
    pixels = Expanded(full(400, height=9, width=6), side=9).batch(slice(None)).pixels
    row, column = corners(pixels)
    assert row.unique().tolist() == [0]
    assert column.unique().tolist() == [0, 1, 2, 3]
