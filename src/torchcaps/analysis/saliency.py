"""Saliency: where in an image the children of the predicted class lie [renzulli2025] Eq. 16.

For children on a grid of M × N positions and O types, and the predicted class j,
    E_mn = (1/O) Σ_o ‖u_mno‖ c_mno,j
stretched bilinearly to the size of the image. Where it is known which pixels show the object,
    focus = Σ E inside / Σ E
and the maps E and F of two networks lie apart by
    distance = 1 - Σ E F / (√Σ E² √Σ F²)

Departures: none.
Ambiguities:
1. The paper takes quantised couplings; those of the trace are taken as they are, so quantise them
   by `couple`.
2. The focus is ours. An E of zero everywhere has none.
3. The distance is ours: the paper shows the maps of two networks side by side (Figs. 21 and 22). It
   is 0 where one map is the other times a number, and 1 where no pixel has both; an E of zero
   everywhere has none.
"""

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from torchcaps._checks import check_shape
from torchcaps.analysis.trace import (
    check_children,
    check_parents_are_classes,
    check_trace,
    class_coupling,
    image_lengths,
)
from torchcaps.errors import TorchcapsError, short
from torchcaps.types import Trace


def saliency(trace: Trace, predicted: Tensor, *, n_classes: int, size: tuple[int, int]) -> Tensor:
    """Give maps [k, height, width] of k images.

    Arguments:
        trace: of a network whose last layer has its children on a grid.
        predicted: the class of each image, [k].
        n_classes: how many classes the network scores.
        size: (height, width) of the images.

    >>> saliency(out.trace, out.scores.argmax(-1), n_classes=10, size=(28, 28)).shape
    """
    if isinstance(size, tuple | list) and len(size) != 2:
        raise TorchcapsError(
            f"size must be the (height, width) of the images, but came as {short(size)}."
        )
    maps = saliency_grid(trace, predicted, n_classes=n_classes)
    stretched = interpolate(maps[:, None], size=size, mode="bilinear", align_corners=False)
    return stretched[:, 0]


def saliency_grid(trace: Trace, predicted: Tensor, *, n_classes: int) -> Tensor:
    """Give E at every position of the children, [k, rows, columns], before it is stretched."""
    check_trace(trace)
    last = trace[-1]
    if last.child_grid is None or last.child_grid[0] * last.child_grid[1] == 1:
        where = "no grid" if last.child_grid is None else "one position"
        raise TorchcapsError(
            f"saliency needs children of the last layer at several positions, but those of "
            f"{last.name} lie on {where}; take a network whose classes look at a map, as rem_dr."
        )
    check_children(last)
    check_parents_are_classes(trace, n_classes)
    strength = image_lengths(last.name, last.children) * class_coupling(trace, predicted)  # [k, i]
    maps: Tensor = strength.unflatten(-1, last.child_grid).mean(-1)
    return maps


def carrying(grid: Tensor, *, share: float = 0.5) -> Tensor:
    """Mark the fewest positions of E [k, rows, columns] that hold a share of its sum, bool; of
    equal ones the first, and none where it is zero everywhere."""
    flat = grid.flatten(1)
    values, order = flat.sort(descending=True, stable=True)
    before = values.cumsum(1) - values
    # Rounding lets no position in that is not needed.
    first = before < (share - 1e-9) * flat.sum(1, keepdim=True)
    return torch.zeros_like(first).scatter(1, order, first).view(grid.shape)


def focus(maps: Tensor, inside: Tensor) -> Tensor:
    """Give the share of each map that lies inside, [k]; NaN where a map is zero everywhere.

    Arguments:
        maps: [k, height, width].
        inside: which pixels show the object, bool [k, height, width].

    >>> focus(maps, inside)
    """
    check_shape("a mask", inside, maps.shape, "each pixel of a map has one truth value")
    if not bool(((inside >= 0) & (inside <= 1)).all()):
        raise TorchcapsError(
            f"a mask is true where the object is and false elsewhere, but holds numbers from "
            f"{inside.min().item():g} to {inside.max().item():g}; compare it, mask > 0."
        )
    share: Tensor = (maps * inside).sum((-2, -1)) / maps.sum((-2, -1))
    return torch.where(share.isfinite(), share, torch.nan)


def saliency_distance(first: Tensor, second: Tensor) -> Tensor:
    """Say how far the maps of two networks lie apart on each image, 0 to 1, [k]; NaN where one of
    them is zero everywhere.

    Arguments:
        first: [k, height, width].
        second: of the other network on the same images, [k, height, width].

    >>> saliency_distance(torch.ones(1, 2, 2), torch.eye(2)[None])  # 1 - 2 / (2 · √2)
    tensor([0.2929], dtype=torch.float64)
    """
    so = "stretch both maps to the size of the image: saliency(..., size=)"
    check_shape("the second map", second, first.shape, so)
    one, other = (each.double().flatten(-2) for each in (first, second))
    cosine = (one * other).sum(-1) / (one.norm(dim=-1) * other.norm(dim=-1))
    # Rounding puts that of equal maps a little above one.
    distance: Tensor = 1 - cosine.clamp(max=1)
    return distance
