"""Whether a layer runs to be seen."""

import torch
from torch.autograd import forward_ad

from torchcaps.ops.constant import constant

__all__ = ["is_looked_through"]


def is_looked_through() -> bool:
    """Whether somebody wants to see a convolution, not what it is made of: torch.export,
    torch.jit.trace, torch.func. torch.compile wants what is fast, except inside those."""
    # The level is read once more here, where torch.compile sees it: a graph that was made outside
    # forward mode is then not used within.
    if _is_transformed() or forward_ad._current_level >= 0:
        return True
    if torch.compiler.is_compiling():
        return torch.compiler.is_exporting()
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined]


# Asked while a graph is made, which itself cannot ask for the transforms that are active.
@constant
def _is_transformed() -> bool:
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
