"""How the parts of a network hang together: which channels are read by which convolution.

A plain trunk is a chain: every convolution reads what the one before it gave, with element-wise
functions and normalisation in between. A channel then has three kinds of places: the kernels that
make it, depthwise kernels that pass it on, and the columns of the next dense convolution that read
it. What the last run of the chain makes are the components of primary capsules.

DeepCaps is no chain, but its ways are known: a map is the sum of what one or two convolutions make,
and one or two read it. There the components of a capsule go together, since they are squashed by
one norm.
"""

import math
from typing import NamedTuple, cast

from torch import nn

from torchcaps.errors import TorchcapsError
from torchcaps.layers import CapsuleLayer, Conv3dCapsules, ConvCapsules, DenseCapsules
from torchcaps.models.deepcaps import DeepCaps
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.own import OwnNetwork

# What stands between convolutions and treats every channel by itself.
BETWEEN = (nn.ReLU, nn.LeakyReLU, nn.BatchNorm2d, nn.InstanceNorm2d, nn.Identity)


class Run(NamedTuple):
    """Parts that channels pass from where they are made until another convolution reads them."""

    makers: tuple[str, ...]  # the dense convolutions whose sum the channels are
    passed: tuple[str, ...]  # depthwise convolutions and normalisations, in order
    readers: tuple[str, ...]  # the dense convolutions that read them; none: primary capsules do
    size: int = 1  # how many neighbours go together: the components of a capsule
    layer: str = ""  # the routed layer whose children they are too, if any
    rows: tuple[tuple[int, ...], ...] = ()  # which of its children each unit is

    @property
    def name(self) -> str:
        """The convolution by which its channels are known."""
        return self.makers[0]

    def channels(self, unit: int) -> tuple[int, ...]:
        """The channels of a unit."""
        return tuple(unit * self.size + c for c in range(self.size))


def _chain(network: nn.Module) -> list[tuple[str, nn.Module]]:
    """The parts of a plain trunk with their names, from the image to the primary capsules.

    Refused where channels do not simply follow one another.
    """
    _check_not_own(network)
    if not isinstance(network, CapsuleNetwork):
        raise TorchcapsError(
            f"channels and types are found in networks with one plain chain of convolutions before "
            f"their primary capsules, and a {type(network).__name__} has none; take weights or "
            f"capsules."
        )
    primary = network.primary
    if not isinstance(projection := getattr(primary, "projection", None), nn.Module):
        raise TorchcapsError(f"{type(primary).__name__} has no projection that makes its poses.")
    if getattr(primary, "activation", None) is not None:
        raise TorchcapsError(
            f"{type(primary).__name__} makes activations of the same channels by a projection of "
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
    """The runs of a network, from the image upwards."""
    if isinstance(network, DeepCaps):
        return _runs_of_cells(network)
    found: list[Run] = []
    maker, passed = "", list[str]()
    for name, part in _chain(network):
        if not isinstance(part, nn.Conv2d):
            if maker and not isinstance(part, (nn.ReLU, nn.LeakyReLU, nn.Identity)):
                passed.append(name)
        elif part.groups == 1:
            if maker:
                found.append(Run((maker,), tuple(passed), (name,)))
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
    found.append(Run((maker,), tuple(passed), ()))
    return found


def type_runs(network: nn.Module) -> list[Run]:
    """The runs whose units are types of capsules: the last of a chain, most of DeepCaps."""
    if isinstance(network, DeepCaps):
        return [run for run in runs(network) if run.size > 1]
    *_, last = runs(network)
    name = next(iter(capsule_layers_of(network)))
    size, rows = first_layer(network).d_in, tuple(rows_of_types(network))
    return [last._replace(size=size, layer=name, rows=rows)]


def _runs_of_cells(network: DeepCaps) -> list[Run]:
    """The runs of DeepCaps. Maps that `cell_4_skip` reads are not among them: its kernel is shared
    by all types. Nor are those that it makes, which are squashed over a map."""
    found = [Run(("backbone.0.0",), ("backbone.0.2",), (_convolution("backbone.1.halved"),))]
    for k in (1, 2, 3):
        halved, skip = f"backbone.{k}.halved", f"backbone.{k}.skip"
        first, second = f"backbone.{k}.residual.0", f"backbone.{k}.residual.1"
        above = "halved" if k == 3 else f"backbone.{k + 1}.halved"
        for makers, readers in (
            ((halved,), (first, skip)),
            ((first,), (second,)),
            ((second, skip), (above,)),
        ):
            found.append(_capsule_run(network, makers, readers))
    found[-1] = found[-1]._replace(layer="classes", rows=_rows_of_cell_3(network))
    return [*found, _capsule_run(network, ("residual.0",), ("residual.1",))]


def _capsule_run(network: DeepCaps, makers: tuple[str, ...], readers: tuple[str, ...]) -> Run:
    size = cast(int, network.get_submodule(makers[0]).d_out)
    return Run(tuple(map(_convolution, makers)), (), tuple(map(_convolution, readers)), size)


def _rows_of_cell_3(network: DeepCaps) -> tuple[tuple[int, ...], ...]:
    """The children of the classes that are of each type of cell 3: they come after cell 4."""
    classes = cast(DenseCapsules, network.layers["classes"])
    convolution = cast(nn.Conv2d, network.get_submodule(_convolution("backbone.3.skip")))
    types = convolution.out_channels // classes.d_in
    before = math.prod(cast(Conv3dCapsules, network.layers["cell_4_skip"]).parent_grid)
    return tuple(tuple(range(before + t, classes.n_in, types)) for t in range(types))


def _convolution(name: str) -> str:
    """Describe a layer of convolutional capsules."""
    return f"{name}.projection"


def capsule_layers_of(network: nn.Module) -> dict[str, nn.Module]:
    """The routed layers by name; refused where there are none."""
    _check_not_own(network)
    layers = getattr(network, "layers", None)
    if not isinstance(layers, nn.ModuleDict) or not len(layers):
        raise TorchcapsError(
            f"a {type(network).__name__} has no capsules, so none can be pruned or taken out; take "
            f"weights, or another network."
        )
    return dict(layers.items())


def _check_not_own(network: nn.Module) -> None:
    if isinstance(network, OwnNetwork):
        raise TorchcapsError(
            f"how the parts of a {type(network.module).__name__} hang together is not known, so no "
            f"capsules, types or channels can be taken out of it; prune its weights, or take a "
            f"network by its name."
        )


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
    # One with a forward of its own, such as a residual block, may do more than run them.
    if not isinstance(part, nn.Sequential) or type(part).forward is not nn.Sequential.forward:
        return [(name, part)]
    return [
        leaf for key, inside in part.named_children() for leaf in _leaves(f"{name}.{key}", inside)
    ]
