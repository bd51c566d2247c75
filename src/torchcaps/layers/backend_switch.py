"""One switch for every part of a network that can be computed in several ways."""

from typing import get_args

from torch import nn

from torchcaps.layers.convolution import LargeConv2d, SmallConv2d, WholeMapConv2d
from torchcaps.layers.routing import Backend, Routing
from torchcaps.ops.checks import check_choice

__all__ = ["use_backend"]


def use_backend(module: nn.Module, backend: Backend) -> None:
    """Choose how every routing inside a module routes; "plain" is plain for convolutions too."""
    check_choice("backend", backend, get_args(Backend))
    for part in module.modules():
        if isinstance(part, LargeConv2d | SmallConv2d | WholeMapConv2d):
            part.is_direct = backend == "plain"
        if isinstance(part, Routing):
            part.backend = backend
