"""Whether Triton can run here, and how its kernels are started.

It is an extra, `pip install "torchcaps[triton]"`; nothing imports it before a kernel is wanted.
"""

import importlib.util
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.ops.constant import constant

__all__ = ["available", "check_available", "interpreted", "launch"]


@constant
def available() -> bool:
    """Whether Triton is installed and finds a GPU or, in tests, runs in its interpreter."""
    return _is_installed() and (interpreted() or torch.cuda.is_available())


@constant
def interpreted() -> bool:
    """Whether kernels run on the processor, slowly, as TRITON_INTERPRET=1 asks for before Triton is
    first imported."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y")


def check_available(device: torch.device) -> None:
    """Triton can run on tensors of this device, or an error says what it lacks."""
    if not _is_installed():
        raise TorchcapsError(
            'backend="triton" needs Triton, which is not installed: '
            'pip install "torchcaps[triton]"; or use backend="auto".'
        )
    if device.type not in ("cuda", "meta") and not interpreted():
        raise TorchcapsError(
            f'backend="triton" routes on a GPU, but the children lie on {device.type!r}; move '
            f'model and data with .to("cuda"), or use backend="auto".'
        )


def launch(kernel: Any, programs: int, like: Tensor, *arguments: Any, **constants: Any) -> None:
    """So many programs of a kernel, on the GPU where `like` lies."""
    with _on(like):
        kernel[(programs,)](*arguments, **constants)


@constant
def _is_installed() -> bool:
    found = importlib.util.find_spec("triton")
    return found is not None and found.origin is not None


def _on(tensor: Tensor) -> AbstractContextManager[object]:
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
