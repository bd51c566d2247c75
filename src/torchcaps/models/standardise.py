"""Images brought to mean 0 and standard deviation 1, as a part of the network.

So whoever shows a network images shows them as they are, in [0, 1], and no file of weights is ever
without the numbers that belong to it. Decoders draw images as they are, too.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, short
from torchcaps.models.images import check_images


class Standardise(nn.Module):
    """Each channel less its mean, divided by its standard deviation.

    Arguments:
        channels: how many an image has.
        mean: of each channel, subtracted.
        std: of each channel, by which is divided; above 0.
    """

    mean: Tensor  # [c, 1, 1]
    std: Tensor  # [c, 1, 1]

    def __init__(self, channels: int, mean: Sequence[float], std: Sequence[float]):
        super().__init__()
        if not (_are_numbers(mean) and _are_numbers(std) and len(mean) == len(std) == channels):
            each = "one channel" if channels == 1 else f"each of {channels} channels"
            raise TorchcapsError(
                f"standardise must be (means, standard deviations), with a finite number for "
                f"{each} in both, but came as {short((mean, std))}."
            )
        if min(std) <= 0:
            raise TorchcapsError(
                f"standardise divides by the standard deviations, so they must be above 0, but "
                f"they came as {short(std)}."
            )
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32)[:, None, None])
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32)[:, None, None])

    def forward(self, image: Tensor) -> Tensor:
        return (image - self.mean) / self.std


def prepared(image: Tensor, expected: tuple[int, int, int], network: nn.Module) -> Tensor:
    """Images that were checked, and standardised where the network does that."""
    check_images(image, expected, network)
    standardise: Standardise | None = getattr(network, "standardise", None)
    return image if standardise is None else standardise(image)


def _are_numbers(values: object) -> bool:
    return isinstance(values, tuple | list) and all(
        type(value) in (int, float) and math.isfinite(value) for value in values
    )
