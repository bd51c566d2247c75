"""The fully connected decoder: an image from the class capsules."""

import math

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.ops.checks import check_classes
from torchcaps.types import Capsules

__all__ = ["Decoder"]


class Decoder(nn.Module):
    """FC 512 – FC 1024 – FC pixels, ReLU between, sigmoid at the end [gu2021] §3, [renzulli2025]
    C.2.

    It sees the poses of one class, all others zeroed: the true class where it is given, else the
    longest. [sabour2017]
    """

    def __init__(self, *, n_classes: int, d_in: int, image: tuple[int, int, int]):
        super().__init__()
        self.n_classes, self.d_in, self.image = n_classes, d_in, image
        self.layers = nn.Sequential(
            nn.Linear(n_classes * d_in, 512),
            nn.ReLU(),
            nn.Linear(512, 1024),
            nn.ReLU(),
            nn.Linear(1024, math.prod(image)),
            nn.Sigmoid(),
        )

    def forward(self, classes: Capsules, target: Tensor | None = None) -> Tensor:
        pose = classes.pose  # [b, k, d]
        if target is None:
            target = torch.linalg.vector_norm(pose, dim=-1).argmax(-1)
        self._check(target, len(pose))
        shown = torch.nn.functional.one_hot(target, self.n_classes)  # [b, k]
        masked = pose * shown.to(pose.dtype).unsqueeze(-1)
        return torch.unflatten(self.layers(masked.flatten(1)), 1, self.image)

    def _check(self, target: Tensor, batch: int) -> None:
        if target.dtype != torch.int64 or target.shape != (batch,):
            raise TorchcapsError(
                f"target must be class indices, int64 [{batch}], one an image, but came as "
                f"{target.dtype} with shape {list(target.shape)}."
            )
        check_classes(target, self.n_classes)
