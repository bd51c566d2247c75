"""One switch for every part of a network that can be computed in several ways."""

from torch import nn

from torchcaps.layers.convolution import LargeConv2d, SmallConv2d, WholeMapConv2d
from torchcaps.layers.routing import Backend, Routing
from torchcaps.ops.backend import check_backend


def use_backend(module: nn.Module, backend: Backend) -> None:
    """Choose how every routing inside a module routes; "plain" is plain for convolutions too.

    Arguments:
        module: a network, a layer or a routing.
        backend: "auto": votes are stored only where that is faster. "plain": they are stored, and
            convolutions are plain too. "fused": they are made a tile at a time. "native": the same
            by a compiled kernel for processors, where a routing has one.

    >>> use_backend(create_model("capsnet"), "plain")
    """
    check_backend(backend)
    for part in module.modules():
        if isinstance(part, LargeConv2d | SmallConv2d | WholeMapConv2d):
            part.is_direct = backend == "plain"
        if isinstance(part, Routing):
            part.backend = backend
