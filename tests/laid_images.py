"""Images in memory that tests look at: noise, and blocks that tell which image they are."""

from typing import Any

import torch

from torchcaps.data import Batch, ImageSet


class Pets:
    """A data set of others: a length and items are all that is asked for."""

    def __init__(self, *items: Any, classes: list[str] | None = None):
        self.items = items
        if classes:
            self.classes = classes

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, at: int) -> Any:
        return self.items[at]


class Unchecked:
    """Images that nobody checked at the door, of which each may show several classes."""

    def __init__(
        self, pixels: torch.Tensor, labels: torch.Tensor, class_names: Any, judged_by: str = "class"
    ):
        self.name, self.class_names, self.judged_by = "unchecked", class_names, judged_by
        self.held, self.image_shape = Batch(pixels, labels), tuple(pixels.shape[1:])

    def __len__(self) -> int:
        return len(self.held.labels)

    def batch(self, index: Any, epoch: int = 0) -> Batch:
        return Batch(self.held.pixels[index], self.held.labels[index])


def labelled(name: str, images: torch.Tensor, n_classes: int = 1) -> ImageSet:
    """These images, the classes in turn."""
    labels = torch.arange(len(images)) % n_classes
    return ImageSet(name, images, labels, tuple("abcdefgh"[:n_classes]))


def noise(count: int = 20, channels: int = 1, side: int = 12) -> ImageSet:
    """Random bytes, of three classes."""
    images = torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8)
    return labelled("noise", images, 3)


def blocks(count: int, *, rim: int, side: int, n_classes: int) -> ImageSet:
    """A block of one level each, framed by zeros: `levels` tells from it which image it is."""
    images = torch.zeros(count, 1, side, side, dtype=torch.uint8)
    level = torch.arange(1, count + 1, dtype=torch.uint8)
    images[:, :, rim : side - rim, rim : side - rim] = level[:, None, None, None]
    return labelled("blocks", images, n_classes)


def levels(planes: torch.Tensor) -> torch.Tensor:
    """Which image of `blocks` each plane [b, m, c, h, w] shows, wherever its block was moved."""
    return (planes.flatten(2).amax(2) * 255).round().long() - 1


def chi_square(counts: torch.Tensor, expected: torch.Tensor | float) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def planes_of_spots(side: int, lever: int) -> torch.Tensor:
    """Three round spots, a channel each: in the middle, to the right of it and below."""
    x = torch.arange(side) - (side - 1) / 2
    places = [(0, 0), (lever, 0), (0, lever)]
    planes = [
        torch.exp(-((x - right) ** 2 + (x[:, None] - down) ** 2) / 4.5) for right, down in places
    ]
    return torch.stack(planes)[None]


def map_of_spots(pixels: torch.Tensor, lever: int) -> dict[str, torch.Tensor]:
    """Rotation in degrees, shear, both scales and both shifts, from the centres of moved spots."""
    side = pixels.shape[-1]
    x = torch.arange(side) - (side - 1) / 2
    mass = pixels.sum((2, 3))
    centre = torch.stack([(pixels * x).sum((2, 3)), (pixels * x[:, None]).sum((2, 3))], -1)
    centre = centre / mass[..., None]
    shift = centre[:, 0]
    right, below = (centre[:, 1] - shift) / lever, (centre[:, 2] - shift) / lever
    scale_x = right.norm(dim=1)
    along = right / scale_x[:, None]
    across = torch.stack([-along[:, 1], along[:, 0]], 1)
    scale_y = (below * across).sum(1)
    return {
        "rotation": torch.atan2(right[:, 1], right[:, 0]).rad2deg(),
        "shear": (below * along).sum(1) / scale_y,
        "scale_x": scale_x,
        "scale_y": scale_y,
        "shift_x": shift[:, 0],
        "shift_y": shift[:, 1],
    }


def assert_drawn_between(
    found: torch.Tensor, low: float, high: float, *, reach: float = 0.03
) -> None:
    """Within the limits, near to both, and with the mean of an even draw."""
    width = high - low
    assert low - 0.02 * width < found.min() < low + reach * width
    assert high - reach * width < found.max() < high + 0.02 * width
    assert abs(found.mean() - (low + high) / 2) < 4 * width / (12 * len(found)) ** 0.5
