"""What can be pruned as a whole: weights that are of no use without one another.

capsule  a child of a dense layer: its matrices to every parent and, where it is a parent of the
         dense layer below, the matrices that vote for it
type     a type of primary capsules: the kernels that make its channels, and its matrices at every
         position; of DeepCaps a type in one of its cells, with all kernels that read it
channel  a channel between two convolutions: the kernels that make it, and those that read it

With a unit everything is zero that reads it, so that taking it out changes no score. A class is
never pruned: it is no child of any layer.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps._checks import check_choice
from torchcaps.errors import TorchcapsError
from torchcaps.layers import DenseCapsules
from torchcaps.models.structure import Run, capsule_layers_of, runs, type_runs

UnitKind = Literal["weight", "capsule", "type", "channel"]


class Part(NamedTuple):
    """Some rows of a weight along one of its axes."""

    weight: str
    axis: int
    rows: tuple[int, ...]

    def of(self, values: Tensor) -> Tensor:
        """These rows of a tensor with the weight's shape."""
        return values.index_select(self.axis, torch.tensor(self.rows, device=values.device))

    def mark(self, mask: Tensor) -> None:
        """Set them in a boolean tensor of the weight's shape."""
        mask.index_fill_(self.axis, torch.tensor(self.rows, device=mask.device), True)


class Unit(NamedTuple):
    """One capsule, type or channel, the weights that are pruned with it, and the layer whose child,
    type or channel it is."""

    name: str
    parts: tuple[Part, ...]
    layer: str


def units(network: nn.Module, kind: UnitKind) -> tuple[Unit, ...]:
    """All units of one kind; refused where a network has none.

    Arguments:
        network: a network of `create_model`.
        kind: what is set to zero as a whole: "weight", "capsule", "type" or "channel".

    >>> len(units(create_model("capsnet"), "type"))
    32
    """
    finders = {"capsule": _capsules, "type": _types, "channel": _channels}
    check_choice("unit", kind, finders)
    layers = capsule_layers_of(network)
    found = finders[kind](network)
    if not found:
        raise TorchcapsError(
            f"this network has no {kind} that could be pruned as a whole: its "
            f"{len(layers)} routed layers share their matrices, or no convolution reads another."
        )
    return tuple(found)


def lowest_units(
    all_units: Sequence[Unit], scores: Mapping[str, Tensor], pruned: Mapping[str, Tensor]
) -> list[Unit]:
    """The units in the order of their mean scores, the lowest first.

    Units share weights: the column of a channel runs through the kernels of others. Weights that
    went with one unit do not count in the mean of another, which would fall unit by unit.
    """
    means = [_mean(unit, scores, pruned) for unit in all_units]
    return [all_units[k] for k in sorted(range(len(all_units)), key=means.__getitem__)]


def in_step(ordered: Sequence[Unit]) -> list[Unit]:
    """The order within each layer as it is, and layers merged so that each loses the same share of
    its units, however far one goes."""
    many, seen = Counter(unit.layer for unit in ordered), Counter[str]()
    places = []
    for unit in ordered:
        seen[unit.layer] += 1
        places.append(seen[unit.layer] / many[unit.layer])
    return [ordered[k] for k in sorted(range(len(ordered)), key=places.__getitem__)]


def first_units(
    ordered: Sequence[Unit], count: int, pruned: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The first units, as many as bring the pruned weights to `count` at most; with those that are
    pruned already."""
    chosen = {name: mask.clone() for name, mask in pruned.items()}
    held = sum(int(mask.sum()) for mask in chosen.values())
    for unit in ordered:
        more = sum(int((~part.of(chosen[part.weight])).sum()) for part in unit.parts)
        if held + more > count:
            return chosen
        held += more
        for part in unit.parts:
            part.mark(chosen[part.weight])
    return chosen


def held_by(all_units: Sequence[Unit], pruned: Mapping[str, Tensor]) -> int:
    """How many weights belong to some unit or are pruned already."""
    marked = {name: mask.clone() for name, mask in pruned.items()}
    for unit in all_units:
        for part in unit.parts:
            part.mark(marked[part.weight])
    return sum(int(mask.sum()) for mask in marked.values())


def _mean(unit: Unit, scores: Mapping[str, Tensor], pruned: Mapping[str, Tensor]) -> float:
    """Return the mean of the weights that are left; below every other where none is."""
    left = [
        part.of(scores[part.weight])[~part.of(pruned[part.weight])].double() for part in unit.parts
    ]
    many = sum(part.numel() for part in left)
    return sum(float(part.sum()) for part in left) / many if many else -1.0


def _capsules(network: nn.Module) -> list[Unit]:
    found = []
    below = None
    for name, layer in capsule_layers_of(network).items():
        dense = isinstance(layer, DenseCapsules) and layer.sharing == "none"
        if isinstance(layer, DenseCapsules) and dense:
            for i in range(layer.n_in):
                parts = [Part(f"layers.{name}.weight", 0, (i,))]
                parts += [Part(f"layers.{below}.weight", 1, (i,))] if below else []
                found.append(Unit(f"child {i} of {name}", tuple(parts), name))
        below = name if dense else None
    return found


def _types(network: nn.Module) -> list[Unit]:
    all_runs = type_runs(network)
    return [
        Unit(f"type {t} of {run.name}" if len(all_runs) > 1 else f"type {t}", parts, run.name)
        for run in all_runs
        for t, parts in enumerate(_parts_of(network, run))
    ]


def _channels(network: nn.Module) -> list[Unit]:
    return [
        Unit(f"channel {c} of {run.name}", parts, run.name)
        for run in runs(network)
        if run.readers and run.size == 1
        for c, parts in enumerate(_parts_of(network, run))
    ]


def _parts_of(network: nn.Module, run: Run) -> list[tuple[Part, ...]]:
    """What makes each unit of a run, passes it on and reads it."""
    maker = network.get_submodule(run.name)
    assert isinstance(maker, nn.Conv2d)
    found = []
    for unit in range(maker.out_channels // run.size):
        channels = run.channels(unit)
        made = [*run.makers, *convolutions(network, run.passed)]
        parts = [Part(f"{name}.weight", 0, channels) for name in made]
        parts += [Part(f"{name}.weight", 1, channels) for name in run.readers]
        if run.rows:
            parts.append(Part(f"layers.{run.layer}.weight", 0, run.rows[unit]))
        found.append(tuple(parts))
    return found


def convolutions(network: nn.Module, names: Sequence[str]) -> list[str]:
    """Those of the parts that are convolutions."""
    return [name for name in names if isinstance(network.get_submodule(name), nn.Conv2d)]
