"""Images changed by so much, the same whatever the batch: for robustness and invariance."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from torchcaps.data.warp import linear_maps, place, warp

__all__ = ["noise", "occlusion", "robustness_changes", "rotation", "translation"]

Change = Callable[[Tensor], Tensor]


def rotation(degrees: float) -> Change:
    """Turned clockwise about the centre."""

    def turned(pixels: Tensor) -> Tensor:
        angle = torch.full((len(pixels),), math.radians(degrees), dtype=torch.float64)
        one = torch.ones_like(angle)
        maps = linear_maps(angle, torch.zeros_like(angle), one, one)
        still = torch.zeros(len(pixels), 2, 1, dtype=maps.dtype)
        return warp(pixels, torch.cat([maps, still], -1))

    return turned


def translation(pixels: int) -> Change:
    """Moved to the right by whole pixels, black behind."""
    return lambda images: place(images, torch.tensor([[pixels, 0]]).expand(len(images), -1))


def noise(deviation: float, *, seed: int = 0) -> Change:
    """With normal noise, the same for every image, and back into [0, 1]."""

    def noisy(pixels: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        grain = torch.randn(pixels.shape[1:], generator=generator).to(pixels)
        return (pixels + deviation * grain).clamp(0, 1)

    return noisy


def occlusion(share: float) -> Change:
    """With a black square of this share of the image's area in its middle."""

    def hidden(pixels: Tensor) -> Tensor:
        height, width = pixels.shape[-2:]
        tall, wide = (round(side * math.sqrt(share)) for side in (height, width))
        top, left = (height - tall) // 2, (width - wide) // 2
        made = pixels.clone()
        made[..., top : top + tall, left : left + wide] = 0
        return made

    return hidden


def robustness_changes() -> dict[str, Change]:
    """Four changes, each at growing strengths."""
    return {
        **{f"rotation {each}°": rotation(each) for each in (15, 30, 60, 90, 180)},
        **{f"translation {each} px": translation(each) for each in (1, 2, 4, 8)},
        **{f"noise {each}": noise(each) for each in (0.1, 0.2, 0.4)},
        **{f"occlusion {each}": occlusion(each) for each in (0.05, 0.1, 0.2)},
    }
