"""A network routed in other numbers of iterations than it was made with, for one call.

[tsai2020] §4.1 asks whether routing comes to rest when it goes on; weights are those of training.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from torch import nn

from torchcaps.errors import TorchcapsError, short
from torchcaps.layers import Routing, UniformRouting
from torchcaps.ops.checks import AS_IT_IS, check_iterations


def routed_so_often(network: nn.Module, iterations: int | None) -> AbstractContextManager[None]:
    """Let every routing of the network iterate so often inside; None leaves all as it is."""
    return AS_IT_IS if iterations is None else _set(network, iterations)


def refuse_iterations(iterations: int | None) -> None:
    """Say what a network without any routing says of them."""
    if iterations is not None:
        raise TorchcapsError(
            f"iterations={short(iterations)} is for a routing that iterates, but this network "
            f"routes nothing; leave iterations out."
        )


@contextmanager
def _set(network: nn.Module, iterations: int) -> Iterator[None]:
    check_iterations(iterations)
    found = {
        module: module.iterations
        for module in network.modules()
        if isinstance(getattr(module, "iterations", None), int)
    }
    # The skip of a uniform DeepCaps has one iteration, so as to route nowhere.
    uniform = any(isinstance(module, UniformRouting) for module in network.modules())
    if not found or (uniform and not any(isinstance(module, Routing) for module in found)):
        raise TorchcapsError(
            f"iterations={iterations} is for a routing that iterates, but the routing of this "
            f"network passes once; leave iterations out."
        )
    try:
        for module in found:
            module.iterations = iterations  # type: ignore[assignment]
        yield
    finally:
        for module, before in found.items():
            module.iterations = before
