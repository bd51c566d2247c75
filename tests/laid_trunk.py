"""Weights of a ResNet for ImageNet by the published names, drawn at random."""

import functools

import torch
from torch import Tensor

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
