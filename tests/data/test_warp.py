"""Moved images, against a loop over pixels, and maps by hand."""

import math

import pytest
import torch

from torchcaps.data.warp import linear_maps, place, warp

SIZES = [(1, 1, 1, 1), (2, 3, 5, 8), (3, 1, 9, 4), (4, 2, 12, 12)]


def pixel(image, row, column):
    """One pixel of a plane of numbers; zero outside."""
    height, width = len(image), len(image[0])
    return image[row][column] if 0 <= row < height and 0 <= column < width else 0.0


def warped(image, map_, size):
    """One plane moved, pixel by pixel: each looks up where it comes from."""
    (a, b, shift_x), (c, d, shift_y) = map_
    height, width = len(image), len(image[0])
    determinant = a * d - b * c
    moved = []
    tall, wide = size
    for row in range(tall):
        moved.append([])
        for column in range(wide):
            x = column - (wide - 1) / 2 - shift_x
            y = row - (tall - 1) / 2 - shift_y
            from_x = (d * x - b * y) / determinant + (width - 1) / 2
            from_y = (a * y - c * x) / determinant + (height - 1) / 2
            left, top = math.floor(from_x), math.floor(from_y)
            value = 0.0
            for near_y, near_x in ((0, 0), (0, 1), (1, 0), (1, 1)):
                share_x = from_x - left if near_x else 1 - (from_x - left)
                share_y = from_y - top if near_y else 1 - (from_y - top)
                value += share_x * share_y * pixel(image, top + near_y, left + near_x)
            moved[row].append(value)
    return moved


def random_maps(count, dtype):
    maps = torch.randn(count, 2, 3, dtype=dtype)
    maps[:, :, :2] = torch.eye(2, dtype=dtype) + maps[:, :, :2] * 0.2
    return maps


@pytest.mark.parametrize("size", [None, (7, 4), (9, 12)], ids=str)
@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_warp_equals_a_loop_over_pixels(shape, dtype, error, size) -> None:
    images, maps = torch.rand(shape, dtype=dtype), random_maps(shape[0], dtype)
    expected = [
        [warped(plane, map_, size or shape[2:]) for plane in image]
        for image, map_ in zip(images.tolist(), maps.tolist(), strict=True)
    ]
    torch.testing.assert_close(
        warp(images, maps, size), torch.tensor(expected, dtype=dtype), rtol=0, atol=error
    )


def test_a_quarter_turn_is_clockwise() -> None:
    image = torch.arange(16.0).view(1, 1, 4, 4)
    turned = warp(image, torch.tensor([[[0.0, -1.0, 0.0], [1.0, 0.0, 0.0]]]))
    assert torch.equal(turned, image.rot90(-1, (2, 3)))


@pytest.mark.parametrize("shift", [(0, 0), (2, 0), (0, -3), (-4, 5), (8, 0), (-90, 1)])
def test_whole_shifts_are_exact_and_equal_place(shift) -> None:
    images = torch.rand(2, 3, 6, 8)
    maps = torch.eye(2, 3).repeat(2, 1, 1)
    maps[:, :, 2] = torch.tensor(shift)
    placed = place(images, torch.tensor([shift, shift]))
    assert torch.equal(warp(images, maps), placed)
    dx, dy = shift
    for row in range(6):
        for column in range(8):
            inside = 0 <= row - dy < 6 and 0 <= column - dx < 8
            expected = images[:, :, row - dy, column - dx] if inside else torch.zeros(2, 3)
            assert torch.equal(placed[:, :, row, column], expected)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_place_puts_each_image_where_its_corner_is_told(dtype) -> None:
    images = torch.randint(1, 255, (3, 2, 4, 5)).to(dtype)
    corner = torch.tensor([[0, 0], [3, 1], [-2, 7]])
    found = place(images, corner, (9, 8))
    expected = torch.zeros(3, 2, 9, 8, dtype=dtype)
    expected[0, :, :4, :5] = images[0]
    expected[1, :, 1:5, 3:8] = images[1]
    expected[2, :, 7:9, :3] = images[2, :, :2, 2:]
    assert found.dtype == dtype
    assert torch.equal(found, expected)


def test_pixels_stay_in_their_range() -> None:
    images = torch.randint(0, 2, (200, 1, 9, 9)).float()
    moved = warp(images, random_maps(200, torch.float32))
    assert moved.min() == 0
    assert moved.max() <= 1


@pytest.mark.parametrize(
    ("rotation", "shear", "scale_x", "scale_y"),
    [(0.35, 0.0, 1.0, 1.0), (0.0, 0.2, 1.0, 1.0), (0.0, 0.0, 0.8, 1.2), (-0.2, 0.5, 1.1, 0.9)],
)
def test_maps_by_hand(rotation, shear, scale_x, scale_y) -> None:
    numbers = (
        torch.tensor([value], dtype=torch.float64) for value in (rotation, shear, scale_x, scale_y)
    )
    cos, sin = math.cos(rotation), math.sin(rotation)
    by_hand = [
        [cos * scale_x, (cos * shear - sin) * scale_y],
        [sin * scale_x, (sin * shear + cos) * scale_y],
    ]
    found = linear_maps(*numbers)
    torch.testing.assert_close(found[0], torch.tensor(by_hand, dtype=torch.float64))
