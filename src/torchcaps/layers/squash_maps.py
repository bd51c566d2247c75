"""The squash of maps of capsules, as convolutions leave them."""

from typing import final

import torch
from torch import Tensor, nn

from torchcaps.layers.tracing import is_looked_through
from torchcaps.ops.native import squash as native
from torchcaps.ops.squash import squash

__all__ = ["SquashMaps"]

# Numbers below which the way to a kernel takes as long as the kernel saves.
FEWEST = 1 << 16


@final
class SquashMaps(nn.Module):
    """Squash maps [b, type · d, h, w] of capsules with d = `size` components; by a native kernel on
    a CPU with a compiler, in float32, where they are large.

    `is_direct = True`, or `use_backend(network, "plain")`, turns the kernel off. So do
    torch.compile, torch.export, torch.jit.trace and torch.func.
    """

    is_direct: bool = False

    def __init__(self, size: int):
        super().__init__()
        self.size = size

    def forward(self, maps: Tensor) -> Tensor:
        seen = torch.compiler.is_compiling() or is_looked_through()
        small = maps.numel() < FEWEST
        if not (self.is_direct or seen or small) and native.fits(maps, self.size):
            return native.squash_maps(maps, self.size)
        poses = maps.unflatten(1, (-1, self.size)).movedim(2, -1)  # [b, type, h, w, d]
        return squash(poses).movedim(-1, 2).flatten(1, 2)

    def extra_repr(self) -> str:
        return f"size={self.size}"
