"""Moving what an image shows: whole images at once, each its own way, zeros from outside.

A point is (x right, y down) in pixels from the centre of its image. Coordinates and pixels are made
by additions and products alone, each rounded once, and `floor`: a picture is the same bit for bit
whatever the batch, and on every device. `grid_sample` promises neither.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchcaps._checks import check_shape


def cos_sin(angle: Tensor) -> tuple[Tensor, Tensor]:
    """Compute cosine and sine by Taylor polynomials, float64, to 1e-9 within a few turns."""
    angle = angle.to(torch.float64)
    quarter = (angle * (2 / math.pi)).round()
    rest = angle - quarter * (math.pi / 2)
    square = rest * rest
    cos, sin = torch.zeros_like(rest), torch.zeros_like(rest)
    for k in range(6, -1, -1):
        cos = cos * square + (-1) ** k / math.factorial(2 * k)
        sin = sin * square + (-1) ** k / math.factorial(2 * k + 1)
    sin = sin * rest
    odd = (quarter.to(torch.int64) & 1) == 1
    cos, sin = torch.where(odd, -sin, cos), torch.where(odd, cos, sin)
    half_turn = (quarter.to(torch.int64) & 2) == 2
    return torch.where(half_turn, -cos, cos), torch.where(half_turn, -sin, sin)


def linear_maps(rotation: Tensor, shear: Tensor, scale_x: Tensor, scale_y: Tensor) -> Tensor:
    """Make R(rotation) · [[1, shear], [0, 1]] · diag(scale_x, scale_y) for each sample, [b, 2, 2].

    rotation: radians, clockwise on the screen, [b].
    shear: how far a point moves to the right for each pixel that it lies below the centre; 1 leans
        upright lines by 45 degrees.
    """
    cos, sin = (value.to(scale_x.dtype) for value in cos_sin(rotation))
    first = torch.stack([cos * scale_x, sin * scale_x], -1)
    second = torch.stack([(cos * shear - sin) * scale_y, (sin * shear + cos) * scale_y], -1)
    return torch.stack([first, second], -1)


def warp(images: Tensor, maps: Tensor, size: tuple[int, int] | None = None) -> Tensor:
    """Move the points of images where the maps carry them, interpolated bilinearly.

    images: floats [b, c, h, w].
    maps: [b, 2, 3]; point p goes to maps[:, :, :2] p + maps[:, :, 2].
    size: (height, width) of the frame they come to lie in; by default that of the images.

    >>> quarter_turn = torch.tensor([[[0.0, -1.0, 0.0], [1.0, 0.0, 0.0]]])
    >>> warp(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), quarter_turn)
    tensor([[[[3., 1.],
              [4., 2.]]]])
    """
    count, channels, height, width = images.shape
    check_shape("maps", maps, (count, 2, 3), "every image needs one")
    tall, wide = size or (height, width)
    maps = maps.to(images)
    a, b, c, d = maps[:, :, :2].reshape(count, 4).unbind(-1)
    inverse = torch.stack([d, -b, -c, a], -1) / (a * d - b * c)[:, None]
    x = torch.arange(wide, dtype=images.dtype, device=images.device) - (wide - 1) / 2
    y = torch.arange(tall, dtype=images.dtype, device=images.device) - (tall - 1) / 2
    # Where each pixel of the result comes from: the map is linear, so planes are sums of two lines.
    x, y = x - maps[:, 0, 2, None], y - maps[:, 1, 2, None]
    a, b, c, d = inverse[:, :, None].unbind(1)
    from_x = (a * x)[:, None, :] + (b * y + (width - 1) / 2)[:, :, None]
    from_y = (c * x)[:, None, :] + (d * y + (height - 1) / 2)[:, :, None]

    # Beyond the rim of zeros there is nothing but zeros.
    from_x, from_y = from_x.clamp_(-1, width), from_y.clamp_(-1, height)
    left, top = from_x.floor().clamp_(max=width - 1), from_y.floor().clamp_(max=height - 1)
    share_x, share_y = from_x.sub_(left)[:, None], from_y.sub_(top)[:, None]
    stride = width + 2
    corner = top.long().add_(1).mul_(stride).add_(left.long()).add_(1).view(count, 1, -1)
    corner = corner.expand(-1, channels, -1)
    framed = pad(images, (1, 1, 1, 1)).flatten(2)

    def line(step: int) -> Tensor:
        near = framed.gather(2, corner + step).view(count, channels, tall, wide)
        far = framed.gather(2, corner + (step + 1)).view(count, channels, tall, wide)
        return far.sub_(near).mul_(share_x).add_(near)

    upper, lower = line(0), line(stride)
    return lower.sub_(upper).mul_(share_y).add_(upper)


def place(images: Tensor, corner: Tensor, size: tuple[int, int] | None = None) -> Tensor:
    """Put images down on black by whole pixels, without interpolation.

    images: of any type, [b, c, h, w].
    corner: whole numbers (x, y) [b, 2], where the image's upper left pixel goes; what reaches over
        the frame is cut off.
    size: (height, width) of the frame; by default that of the images.

    >>> place(torch.tensor([[[[1, 2], [3, 4]]]]), torch.tensor([[1, 0]]))
    tensor([[[[0, 1],
              [0, 3]]]])
    """
    count, channels, height, width = images.shape
    tall, wide = size or (height, width)
    corner = corner.to(images.device)
    columns = torch.arange(wide, device=images.device) - corner[:, :1]
    rows = torch.arange(tall, device=images.device) - corner[:, 1:]
    columns, rows = columns.clamp_(-1, width) + 1, rows.clamp_(-1, height) + 1
    source = (rows * (width + 2))[:, :, None] + columns[:, None, :]
    framed = pad(images, (1, 1, 1, 1)).flatten(2)
    found = framed.gather(2, source.view(count, 1, -1).expand(-1, channels, -1))
    return found.view(count, channels, tall, wide)
