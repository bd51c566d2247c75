"""DeepCaps [rajasegaran2019] without its decoder: four cells of convolutional capsules, one skip
routed by a 3-D convolution, classes by dynamic routing from the last two cells.
"""

import torch
from torch import Tensor, nn

TYPES, WIDTH = 32, 128

# A torchcaps network calls its tensors by the names on the left.
NAMES = {
    ".projection.": ".conv.",
    "backbone.0.0.": "conv.",
    "backbone.0.2.": "norm.",
    "backbone.1.": "cells.0.",
    "backbone.2.": "cells.1.",
    "backbone.3.": "cells.2.",
    "layers.cell_4_skip.": "skip.",
    "layers.classes.weight": "weight",
}


class DeepCaps(nn.Module):
    def __init__(
        self,
        *,
        image: tuple[int, int, int],
        n_classes: int,
        iterations: int = 3,
        detach: bool = False,
    ):
        super().__init__()
        channels, *sides = image
        self.iterations, self.detach = iterations, detach
        self.conv = nn.Conv2d(channels, WIDTH, 3, padding=1)
        self.norm = nn.BatchNorm2d(WIDTH, eps=1e-3, momentum=0.01)
        self.cells = nn.ModuleList([Cell(WIDTH, 4), Cell(TYPES * 4, 8), Cell(TYPES * 8, 8)])
        self.halved = ConvCaps(TYPES * 8, 8, stride=2)
        self.residual = nn.Sequential(ConvCaps(TYPES * 8, 8), ConvCaps(TYPES * 8, 8))
        self.skip = Skip(iterations, detach)
        positions = 0
        for halvings in (3, 4):
            height, width = (-(-side // 2**halvings) for side in sides)
            positions += height * width
        self.weight = nn.Parameter(torch.randn(positions * TYPES, n_classes, 32, 8) * 0.05)

    def forward(self, image: Tensor, target: Tensor | None = None) -> tuple[Tensor, None]:
        maps = self.norm(torch.relu(self.conv(image)))
        for cell in self.cells:
            maps = cell(maps)
        halved = self.halved(maps)
        last = self.residual(halved) + self.skip(halved)
        children = torch.cat([capsules(last), capsules(maps)], dim=1)
        votes = torch.einsum("bid,ijod->bijo", children, self.weight)
        b = votes.new_zeros(votes.shape[:-1])
        for t in range(self.iterations):
            final = t == self.iterations - 1
            seen = votes.detach() if self.detach and not final else votes
            c = b.softmax(dim=-1)
            v = squash(torch.einsum("bij,bijo->bjo", c, seen), -1)
            if not final:
                b = b + torch.einsum("bijo,bjo->bij", seen, v)
        return v.norm(dim=-1), None


class ConvCaps(nn.Module):
    """A convolution whose maps [b, type * d, h, w] are squashed capsule by capsule."""

    def __init__(self, channels: int, d: int, stride: int = 1):
        super().__init__()
        self.d = d
        self.conv = nn.Conv2d(channels, TYPES * d, 3, stride, 1, bias=False)
        bound = 3**0.5 * self.conv.weight.numel() ** -0.25
        nn.init.uniform_(self.conv.weight, -bound, bound)

    def forward(self, maps: Tensor) -> Tensor:
        s = self.conv(maps)
        batch, _, height, width = s.shape
        return squash(s.view(batch, TYPES, self.d, height, width), 2).view_as(s)


class Cell(nn.Module):
    def __init__(self, channels: int, d: int):
        super().__init__()
        self.halved = ConvCaps(channels, d, stride=2)
        self.skip = ConvCaps(TYPES * d, d)
        self.residual = nn.Sequential(ConvCaps(TYPES * d, d), ConvCaps(TYPES * d, d))

    def forward(self, maps: Tensor) -> Tensor:
        halved = self.halved(maps)
        return self.residual(halved) + self.skip(halved)


class Skip(nn.Module):
    """Every child type votes by one 3-D convolution; all parents, everywhere, compete for it."""

    def __init__(self, iterations: int, detach: bool):
        super().__init__()
        self.iterations, self.detach = iterations, detach
        self.weight = nn.Parameter(torch.randn(TYPES * 8, 1, 8, 3, 3) * (2 / 72) ** 0.5)
        self.bias = nn.Parameter(torch.full((TYPES, 8), 0.1))

    def forward(self, maps: Tensor) -> Tensor:
        batch, _, height, width = maps.shape
        votes = nn.functional.conv3d(
            maps.unsqueeze(1), self.weight, stride=(8, 1, 1), padding=(0, 1, 1)
        )
        votes = votes.view(batch, TYPES, 8, TYPES, height, width)
        votes = votes.permute(0, 3, 1, 2, 4, 5)  # [b, child type, parent type, d, h, w]
        b = votes.new_zeros(batch, TYPES, TYPES, height, width)
        for t in range(self.iterations):
            final = t == self.iterations - 1
            seen = votes.detach() if self.detach and not final else votes
            c = b.flatten(2).softmax(dim=-1).view_as(b)
            s = torch.einsum("bijhw,bijdhw->bjdhw", c, seen) + self.bias[..., None, None]
            v = squash(s.flatten(2), -1).view_as(s)
            if not final:
                b = b + torch.einsum("bijdhw,bjdhw->bijhw", seen, v)
        return v.flatten(1, 2)


def capsules(maps: Tensor) -> Tensor:
    """Maps [b, type * 8, h, w] as capsules [b, h * w * type, 8]."""
    batch, _, height, width = maps.shape
    poses = maps.view(batch, TYPES, 8, height, width).permute(0, 3, 4, 1, 2)
    return poses.reshape(batch, -1, 8)


def squash(s: Tensor, dim: int) -> Tensor:
    square = s.pow(2).sum(dim=dim, keepdim=True)
    return square / (1 + square) * s / torch.sqrt(square + 1e-8)
