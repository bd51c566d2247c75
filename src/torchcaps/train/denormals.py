"""Numbers nearer to zero than 1e-38, which a float32 holds only in part: denormal ones.

A processor computes with them in its microcode, up to seventy times as slowly, and gradients of a
deep network that is at chance are such numbers for epochs.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["denormals_as_zero"]


@contextmanager
def denormals_as_zero() -> Iterator[None]:
    """Take them for zero in this thread, as GPUs do in some kernels; no update that they make could
    be seen in a weight. Does nothing on a processor that cannot.

    >>> with denormals_as_zero():
    ...     print(float(torch.tensor(1e-39) * 1))  # doctest: +SKIP
    0.0
    """
    before = _are_zero()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _are_zero() -> bool:
    """Whether somebody said so before; torch can only be told."""
    return float(torch.tensor(1e-310, dtype=torch.float64) * 1) == 0.0
