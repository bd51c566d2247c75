"""Weights of a ResNet for ImageNet by the published names, drawn at random, and its twin."""

import functools

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}


@functools.cache
def published(name: str = "resnet18") -> dict[str, Tensor]:
    """Weights by the published names, written from He et al."""
    wide = name == "resnet50"
    state, made = {}, torch.Generator().manual_seed(1)

    def conv(at: str, c_in: int, c_out: int, side: int) -> None:
        drawn = torch.rand(c_out, c_in, side, side, generator=made)
        state[f"{at}.weight"] = (drawn - 0.5) * (12 / (c_in * side * side)) ** 0.5

    def norm(at: str, c: int) -> None:
        for part, low in (("weight", 0.5), ("bias", 0), ("running_mean", 0), ("running_var", 0.5)):
            state[f"{at}.{part}"] = low + torch.rand(c, generator=made)

    conv("conv1", 3, 64, 7), norm("bn1", 64)
    c_in = 64
    for stage, many in enumerate(BLOCKS[name], 1):
        width = 64 * 2 ** (stage - 1)
        c_out = 4 * width if wide else width
        for block in range(many):
            at = f"layer{stage}.{block}"
            sides = [(c_in, width, 3), (width, c_out, 3)]
            if wide:
                sides = [(c_in, width, 1), (width, width, 3), (width, c_out, 1)]
            for k, (into, out, side) in enumerate(sides, 1):
                conv(f"{at}.conv{k}", into, out, side), norm(f"{at}.bn{k}", out)
            if block == 0 and (stage > 1 or wide):
                conv(f"{at}.downsample.0", c_in, c_out, 1), norm(f"{at}.downsample.1", c_out)
            c_in = c_out
    state["fc.weight"], state["fc.bias"] = torch.rand(1000, c_in), torch.rand(1000)
    return state


def maps_of(name: str, state: dict[str, Tensor], x: Tensor) -> Tensor:
    """The last maps, written from He et al. by the published names alone."""

    def conv(at: str, x: Tensor, stride: int = 1) -> Tensor:
        weight = state[f"{at}.weight"]
        return F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)

    def norm(at: str, x: Tensor) -> Tensor:
        weight, bias, mean, var = (
            state[f"{at}.{part}"] for part in ("weight", "bias", "running_mean", "running_var")
        )
        return F.batch_norm(x, mean, var, weight, bias)

    x = F.max_pool2d(norm("bn1", conv("conv1", x, 2)).relu(), 3, 2, 1)
    for stage, many in enumerate(BLOCKS[name], 1):
        for block in range(many):
            at = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            y, last = x, 3 if name == "resnet50" else 2
            for k in range(1, last + 1):
                # In its 3×3 convolution, of two the first.
                halves = stride if k == last - 1 else 1
                y = norm(f"{at}.bn{k}", conv(f"{at}.conv{k}", y, halves))
                y = y.relu() if k < last else y
            if f"{at}.downsample.0.weight" in state:
                x = norm(f"{at}.downsample.1", conv(f"{at}.downsample.0", x, stride))
            x = (x + y).relu()
    return x
