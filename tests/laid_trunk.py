"""Weights of a ResNet-18 for ImageNet by the published names, drawn at random."""

import torch
from torch import Tensor

from torchcaps.layers import FrozenTrunk
from torchcaps.models.files.trunk import _published


def published() -> dict[str, Tensor]:
    """Nobody looks at the last layer."""
    state = {"fc.weight": torch.randn(10, 512), "fc.bias": torch.randn(10)}
    with torch.device("meta"):
        maps = FrozenTrunk(3, "resnet18_imagenet").maps.state_dict()
    for name, tensor in maps.items():
        if name.endswith("num_batches_tracked"):
            continue
        drawn = torch.rand(tensor.shape) if tensor.ndim == 1 else torch.randn(tensor.shape) * 0.05
        state[_published(name)] = drawn + 0.5 * ("running_var" in name)
    return state
