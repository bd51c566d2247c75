"""The squash of maps of capsules, as convolutions leave them."""

from typing import final

import torch
from torch import Tensor, nn

from torchcaps.layers.tracing import is_looked_through
from torchcaps.ops.native import squash as native
from torchcaps.ops.squash import squash_over

__all__ = ["SquashMaps"]

# Numbers below which the way to a kernel takes as long as the kernel saves, where gradients are
# wanted; without them it is a short one.
FEWEST = 1 << 16


@final
class SquashMaps(nn.Module):
    """Squash maps [b, type · d, h, w] of capsules with d = `size` components; by a native kernel on
    a CPU with a compiler, in float32, where they are large or nobody wants gradients.

    `is_direct = True`, or `use_backend(network, "plain")`, turns the kernel off. So do
    torch.compile, torch.export, torch.jit.trace and torch.func.
    """

    is_direct: bool = False

    def __init__(self, size: int):
        super().__init__()
        self.size = size

    def forward(self, maps: Tensor) -> Tensor:
        seen = torch.compiler.is_compiling() or is_looked_through()
        if not (self.is_direct or seen) and self._pays(maps) and native.fits(maps, self.size):
            return native.squash_maps(maps, self.size)
        poses = torch.unflatten(maps, 1, (-1, self.size))  # [b, type, d, h, w]
        return squash_over(2, poses).flatten(1, 2)

    def _pays(self, maps: Tensor) -> bool:
        wants_gradients = maps.requires_grad and torch.is_grad_enabled()
        return not wants_gradients or maps.numel() >= FEWEST

    def extra_repr(self) -> str:
        return f"size={self.size}"
