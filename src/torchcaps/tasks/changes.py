"""Images changed by so much, the same whatever the batch: for what looks at changed images."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from torchcaps.data.warp import linear_maps, place, warp

Change = Callable[[Tensor], Tensor]
Axis = Literal["x", "y"]


def rotation(degrees: float) -> Change:
    """Turn clockwise about the centre."""
    one = torch.ones(1, dtype=torch.float64)
    return _mapped(linear_maps(one * math.radians(degrees), one * 0, one, one))


def scaling(factor: float) -> Change:
    """Enlarge by a factor about the centre."""
    one = torch.ones(1, dtype=torch.float64)
    return _mapped(linear_maps(one * 0, one * 0, one * factor, one * factor))


def shear(degrees: float, *, along: Axis = "x") -> Change:
    """Lean upright lines to the right by so many degrees, or along y level lines downwards."""
    lean = math.tan(math.radians(degrees))
    rows = [[1.0, lean], [0.0, 1.0]] if along == "x" else [[1.0, 0.0], [lean, 1.0]]
    return _mapped(torch.tensor([rows], dtype=torch.float64))


def _mapped(maps: Tensor) -> Change:
    """Move pixels as a linear map [1, 2, 2] moves points about the centre."""
    still = torch.cat([maps, torch.zeros(1, 2, 1, dtype=maps.dtype)], -1)
    return lambda pixels: warp(pixels, still.expand(len(pixels), -1, -1))


def translation(pixels: int, *, along: Axis = "x") -> Change:
    """Move by whole pixels to the right, or along y downwards, black behind."""
    corner = torch.tensor([[pixels, 0] if along == "x" else [0, pixels]])
    return lambda images: place(images, corner.expand(len(images), -1))


def noise(deviation: float) -> Change:
    """Add normal noise, the same for every image, and come back into [0, 1]."""

    def noisy(pixels: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        grain = torch.randn(pixels.shape[1:], generator=generator).to(pixels)
        return (pixels + deviation * grain).clamp(0, 1)

    return noisy


def occlusion(share: float) -> Change:
    """Lay a black square of this share of the image's area in its middle."""

    def hidden(pixels: Tensor) -> Tensor:
        height, width = pixels.shape[-2:]
        tall, wide = (round(side * math.sqrt(share)) for side in (height, width))
        top, left = (height - tall) // 2, (width - wide) // 2
        made = pixels.clone()
        made[..., top : top + tall, left : left + wide] = 0
        return made

    return hidden


def robustness_changes() -> dict[str, Change]:
    """Make four changes, each at growing strengths."""
    return {
        **{f"rotation {each}°": rotation(each) for each in (15, 30, 60, 90, 180)},
        **{f"translation {each} px": translation(each) for each in (1, 2, 4, 8)},
        **{f"noise {each}": noise(each) for each in (0.1, 0.2, 0.4)},
        **{f"occlusion {each}": occlusion(each) for each in (0.05, 0.1, 0.2)},
    }


def invariance_changes() -> dict[str, Change]:
    """Make one change at a time, after [mitterreiter2023] §4.2, which states no strengths."""
    return {
        **{f"rotation {each}°": rotation(each) for each in (15, 30, 60, 90, 180)},
        **{f"translation {each} px": translation(each) for each in (1, 2, 4, 8)},
        **{f"scale {each}": scaling(each) for each in (0.5, 0.75, 1.25, 1.5)},
        **{f"shear {each}°": shear(each) for each in (15, 30, 45)},
    }


def compactness_factors() -> dict[str, list[Change]]:
    """Make the six factors of [gu2021] §3.3, which states no ranges, each in nine steps."""
    steps = range(-4, 5)
    return {
        "rotation": [rotation(5 * each) for each in steps],
        "trans-x": [translation(each) for each in steps],
        "trans-y": [translation(each, along="y") for each in steps],
        "scale": [scaling(1 + each / 20) for each in steps],
        "shear-x": [shear(5 * each) for each in steps],
        "shear-y": [shear(5 * each, along="y") for each in steps],
    }
