"""Whether a layer runs to be seen."""

import torch
from torch.autograd import forward_ad

__all__ = ["is_looked_through"]


def is_looked_through() -> bool:
    """Whether somebody wants to see a convolution, not what it is made of: torch.export,
    torch.jit.trace, torch.func. torch.compile wants what is fast."""
    if torch.compiler.is_compiling():
        return torch.compiler.is_exporting()
    return (
        torch.jit.is_tracing()  # type: ignore[attr-defined]
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )
