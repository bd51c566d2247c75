"""How many children come out of what lies below a layer, and where they lie: nobody multiplies."""

import math
from collections.abc import Iterable
from typing import Any, cast

from torch import nn

from torchcaps.errors import TorchcapsError, nearest, short
from torchcaps.layers.attention import AttentionCapsules
from torchcaps.layers.backbone import feature_shape
from torchcaps.layers.capsule_layer import CapsuleLayer
from torchcaps.layers.conv3d import Conv3dCapsules
from torchcaps.types import Grid

# What layers call what a head calls otherwise.
MEANT = {"d_in": "d_primary", "d_out": "d_class", "n_out": "n_classes"}


def features_after(backbone: nn.Module, image: tuple[int, int, int]) -> tuple[int, int, int]:
    """Give the (channels, height, width) of the feature map that a backbone makes of an image."""
    check_image(image)
    if isinstance(backbone, type) or not isinstance(backbone, nn.Module):
        raise TorchcapsError(
            f"a head comes after a backbone, an nn.Module from images to feature maps, but got "
            f"{short(backbone)}."
        )
    return feature_shape(backbone, image)


def children_after(
    below: tuple[nn.Module, ...], image: tuple[int, int, int] | None
) -> dict[str, Any]:
    """Find `n_in`, `d_in` and `child_grid` of a layer on top of `below`: a capsule layer alone, or
    modules from image to primary capsules, one after the other."""
    last = below[-1] if below else None
    if isinstance(last, CapsuleLayer | AttentionCapsules | Conv3dCapsules):
        above = last.parent_grid
        n_in = last.n_out if above is None else math.prod(above)
        return {"n_in": n_in, "d_in": last.d_out, "child_grid": above}
    projection = getattr(last, "projection", None)
    if not isinstance(projection, nn.Module) or not isinstance(getattr(last, "d_out", None), int):
        found = (
            "nothing was given" if last is None else f"the last one given is {type(last).__name__}"
        )
        raise TorchcapsError(
            f"capsules come after primary capsules or another capsule layer, but "
            f"{found}; put layers.PrimaryCapsules(projection, d_out=8) "
            f"between, or take layers.CapsuleHead.after(backbone, …), which brings its own."
        )
    if image is None:
        raise TorchcapsError(
            "how many capsules the primary layer makes depends on the image; say which: "
            "image=(channels, height, width)."
        )
    check_image(image)
    d_in = cast(int, last.d_out)  # type: ignore[union-attr]
    channels, height, width = feature_shape(nn.Sequential(*below[:-1], projection), image)
    if channels % d_in:
        raise TorchcapsError(
            f"the projection makes {channels} channels, which primary capsules of {d_in} "
            f"components cannot share out; take a multiple of {d_in}."
        )
    grid: Grid = (height, width, channels // d_in)
    return {"n_in": math.prod(grid), "d_in": d_in, "child_grid": grid}


def check_names(call: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse names that a call does not take, with the nearest that it takes."""
    known = sorted(known)
    for name in given:
        if name not in known:
            raise TorchcapsError(f"{call} takes no {name}; {nearest(name, known, meant=MEANT)}.")


def check_image(image: object) -> None:
    sides = list(image) if isinstance(image, tuple | list) else []
    if len(sides) != 3 or any(type(side) is not int or side < 1 for side in sides):
        raise TorchcapsError(
            f"image must be (channels, height, width), three whole numbers from 1, but came as "
            f"{short(image)}; a sequence has one row, the slices of a volume are channels."
        )
