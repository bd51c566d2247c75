"""Windows of images: the middle of those that are tested, anywhere of those that are trained on."""

import torch

from laid_images import labelled, noise
from torchcaps.data import Cropped, ImageSet, MultiMnist, some_of
from torchcaps.data.shown.crop import middle
from torchcaps.data.some import anywhere


def numbered(count: int = 40, side: int = 6) -> ImageSet:
    """Pixels tell their row (first channel) and column (second)."""
    rows = torch.arange(side, dtype=torch.uint8)[:, None].expand(side, side)
    images = torch.stack([rows, rows.T]).expand(count, 2, side, side).clone()
    return labelled("numbered", images, 3)


def corners(pixels: torch.Tensor) -> torch.Tensor:
    """Where the upper left pixel of each came from, (row, column)."""
    return (pixels[:, :, 0, 0] * 255).round().long()


def test_without_a_seed_it_is_the_middle():
    found = Cropped(numbered(), (2, 3))
    assert found.image_shape == (2, 2, 3)
    for epoch in (0, 1):
        pixels = found.batch(torch.tensor([1, 5]), epoch).pixels
        assert corners(pixels).tolist() == [[2, 1], [2, 1]]
        assert torch.equal(pixels, found.images.batch(torch.tensor([1, 5])).pixels[:, :, 2:4, 1:4])


def test_with_a_seed_every_place_is_as_likely_and_whole():
    found = Cropped(numbered(3000), (4, 5), seed=3)
    pixels = found.batch(slice(None), epoch=2).pixels
    at = corners(pixels)
    counts = torch.bincount(at[:, 0] * 2 + at[:, 1], minlength=6)
    assert len(counts) == 6  # 3 rows, 2 columns
    # Standard deviation 20.
    assert (counts - 500).abs().max() < 80
    for image, (top, left) in zip(pixels[:20], at.tolist(), strict=False):
        whole = found.images.batch(slice(1)).pixels[0]
        assert torch.equal(image, whole[:, top : top + 4, left : left + 5])


def test_windows_of_some_images_are_drawn_as_they_are_of_all():
    images = Cropped(numbered(), (3, 3))
    some = some_of(images, 12)
    drawn, whole = (anywhere(each, 7).batch(slice(None), 1).pixels for each in (some, images))
    assert torch.equal(drawn, whole[some.index])
    assert len(corners(drawn).unique(dim=0)) > 4
    # The middles that are looked at stay what they are.
    assert corners(some.batch(slice(None), 1).pixels).unique(dim=0).tolist() == [[1, 1]]


def test_parts_are_seen_through_the_same_window():
    batch = Cropped(MultiMnist(noise(9, side=8), shift=1), (5, 4), seed=1).batch(slice(None))
    torch.testing.assert_close(batch.pixels, batch.parts.sum(1).clamp(max=1))


def test_the_middle_of_an_odd_rim_lies_up_and_left():
    assert middle(torch.arange(5.0).view(1, 5), (1, 2)).tolist() == [[1.0, 2.0]]
