"""How the parts of a network hang together: which channels are read by which convolution.

A plain trunk is a chain: every convolution reads what the one before it gave, with element-wise
functions and normalisation in between. A channel then has three kinds of places: the kernels that
make it, depthwise kernels that pass it on, and the columns of the next dense convolution that read
it. What the last run of the chain makes are the components of primary capsules.
"""

from typing import NamedTuple, cast

from torch import nn

from torchcaps.errors import TorchcapsError
from torchcaps.layers import CapsuleLayer, ConvCapsules, DenseCapsules
from torchcaps.models.network import CapsuleNetwork

__all__ = ["Run", "capsule_layers_of", "chain", "first_layer", "rows_of_types", "runs"]

# What stands between convolutions and treats every channel by itself.
BETWEEN = (nn.ReLU, nn.LeakyReLU, nn.BatchNorm2d, nn.InstanceNorm2d, nn.Identity)


class Run(NamedTuple):
    """Parts that a channel passes from where it is made until another convolution reads it."""

    maker: str  # the dense convolution whose kernels make the channels
    passed: tuple[str, ...]  # depthwise convolutions and normalisations, in order
    reader: str | None  # the dense convolution that reads them; None: the primary capsules do


def chain(network: nn.Module) -> list[tuple[str, nn.Module]]:
    """The parts of a plain trunk with their names, from the image to the primary capsules.

    Refused where channels do not simply follow one another.
    """
    if not isinstance(network, CapsuleNetwork):
        raise TorchcapsError(
            f"channels and types are found in networks with one plain chain of convolutions before "
            f"their primary capsules, and a {type(network).__name__} has none; take weights or "
            f"capsules."
        )
    primary = network.primary
    if not isinstance(projection := getattr(primary, "projection", None), nn.Module):
        raise TorchcapsError(f"a {type(primary).__name__} has no projection that makes its poses.")
    if getattr(primary, "activation", None) is not None:
        raise TorchcapsError(
            f"a {type(primary).__name__} makes activations of the same channels by a projection of "
            f"their own, so its channels and types cannot be told apart; take weights or capsules."
        )
    parts = [
        *_leaves("backbone", network.backbone),
        *_leaves("primary.projection", projection),
    ]
    for name, part in parts:
        if not isinstance(part, (nn.Conv2d, *BETWEEN)):
            raise TorchcapsError(
                f"{name} is a {type(part).__name__}, past which channels cannot be followed: other "
                f"parts read them too; take weights or capsules."
            )
    return parts


def runs(network: nn.Module) -> list[Run]:
    """The runs of the chain, from the image upwards."""
    found: list[Run] = []
    maker, passed = "", list[str]()
    for name, part in chain(network):
        if not isinstance(part, nn.Conv2d):
            if maker and not isinstance(part, (nn.ReLU, nn.LeakyReLU, nn.Identity)):
                passed.append(name)
        elif part.groups == 1:
            if maker:
                found.append(Run(maker, tuple(passed), name))
            maker, passed = name, []
        elif part.groups == part.in_channels == part.out_channels:
            passed.append(name)
        else:
            raise TorchcapsError(
                f"{name} reads its channels in {part.groups} groups, so they cannot be followed; "
                f"take weights or capsules."
            )
    if not maker:
        raise TorchcapsError(
            f"a {type(network).__name__} has no convolution before its capsules, so no types "
            f"and no channels that could be pruned; take weights or capsules."
        )
    found.append(Run(maker, tuple(passed), None))
    return found


def capsule_layers_of(network: nn.Module) -> dict[str, nn.Module]:
    """The routed layers by name; refused where there are none."""
    layers = getattr(network, "layers", None)
    if not isinstance(layers, nn.ModuleDict) or not len(layers):
        raise TorchcapsError(
            f"a {type(network).__name__} has no capsules, so none can be pruned or taken out; take "
            f"weights, or another network."
        )
    return dict(layers.items())


def first_layer(network: nn.Module) -> CapsuleLayer:
    """The layer whose children are the primary capsules."""
    return cast(CapsuleLayer, next(iter(capsule_layers_of(network).values())))


def rows_of_types(network: nn.Module) -> list[tuple[int, ...]]:
    """Which rows of the first layer's weights are those of each primary type."""
    layer = first_layer(network)
    types = int(network.primary_grid[2])  # type: ignore[index]
    if isinstance(layer, ConvCapsules) or (
        isinstance(layer, DenseCapsules) and layer.sharing == "none"
    ):
        # Children and slots of a window are both ordered (row, column, type).
        return [tuple(range(t, layer.weight.shape[0], types)) for t in range(types)]
    if isinstance(layer, DenseCapsules) and layer.sharing == "type":
        return [(t,) for t in range(types)]
    raise TorchcapsError(
        'with sharing="all" the types of primary capsules have no matrices of their own, so none '
        "can be pruned or taken out; take weights or channels."
    )


def _leaves(name: str, part: nn.Module) -> list[tuple[str, nn.Module]]:
    """A part, or the parts of a sequence, in the order in which they are run."""
    if not isinstance(part, nn.Sequential):
        return [(name, part)]
    return [
        leaf for key, inside in part.named_children() for leaf in _leaves(f"{name}.{key}", inside)
    ]
