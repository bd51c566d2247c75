"""Measurements by name, and couplings on a grid, for a network that somebody names."""

import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from torchcaps.analysis import (
    MeasureActivity,
    MeasureAntipodal,
    MeasureCalibration,
    MeasureCouplings,
    MeasureDynamics,
    MeasureInDegree,
    MeasureKeys,
    Measurement,
    MeasurePolarisation,
    MeasureTreeDistance,
    MeasureZeroVotes,
    quantise,
)
from torchcaps.analysis.result import Result
from torchcaps.errors import TorchcapsError, nearest
from torchcaps.models.own import OwnNetwork
from torchcaps.types import Couple, Keep, Output

__all__ = [
    "MEASUREMENTS",
    "Levels",
    "in_words",
    "keep_for",
    "lines_of",
    "measured_by",
    "on_grid",
    "seen_through",
]

# Of the grid from 0 to 1: one number for all routed layers, or one for each from below.
Levels = int | Sequence[int]

# Those that ask for nothing but a network and images; the others are for `analysis.measure`.
MEASUREMENTS: dict[str, Callable[[], Measurement]] = {
    "activity": MeasureActivity,
    "antipodal": MeasureAntipodal,
    "calibration": MeasureCalibration,
    "couplings": MeasureCouplings,
    "dynamics": MeasureDynamics,
    "in-degree": MeasureInDegree,
    "keys": MeasureKeys,
    "polarisation": MeasurePolarisation,
    "tree-distance": MeasureTreeDistance,
    "zero-votes": MeasureZeroVotes,
}


def measured_by(names: Sequence[str], *, levels: Levels | None = None) -> dict[str, Measurement]:
    """A fresh measurement for each name; keys are counted on the grid of the last layer."""
    for name in names:
        if name not in MEASUREMENTS:
            raise TorchcapsError(f"measurement {name!r} is unknown; {nearest(name, MEASUREMENTS)}.")
    made = {name: MEASUREMENTS[name]() for name in names}
    if levels is not None and "keys" in made:
        made["keys"] = MeasureKeys(levels=levels if isinstance(levels, int) else levels[-1])
    return made


def keep_for(names: Sequence[str]) -> Keep:
    """What the network has to keep for these measurements."""
    return "steps" if "polarisation" in names else "last"


def seen_through(
    model: nn.Module, *, levels: Levels | None = None, names: Sequence[str] = ()
) -> Callable[[Tensor], Output]:
    """The network as a function of pixels, which keeps what the measurements ask for, with its
    couplings on a grid of `levels`."""
    asked: dict[str, Any] = {}
    if names:
        asked["keep"] = keep_for(names)
    if levels is None:
        return partial(model, **asked)
    return partial(model, couple=on_grid(model, levels), **asked)


def on_grid(model: nn.Module, levels: Levels) -> Couple | dict[str, Couple]:
    """A function on couplings that moves them to the grid, or one for each routed layer."""
    network = model.module if isinstance(model, OwnNetwork) else model
    if "couple" not in inspect.signature(network.forward).parameters:
        raise TorchcapsError(
            f"{type(network).__name__} takes no `couple`, so it has no couplings to quantise; take "
            f"a capsule network, or let the forward of your own take couple=None and hand it to "
            f"its layers."
        )
    if isinstance(levels, int):
        return partial(quantise, levels=levels)
    layers = list(getattr(network, "layers", ()))
    if len(levels) != len(layers):
        raise TorchcapsError(
            f"couplings are quantised to one number of levels, or to one for each of the "
            f"{len(layers)} routed layers {', '.join(layers)}, but {len(levels)} came."
        )
    return {name: partial(quantise, levels=each) for name, each in zip(layers, levels, strict=True)}


def in_words(levels: Levels) -> str:
    """11, or 11 and 6."""
    return str(levels) if isinstance(levels, int) else " and ".join(map(str, levels))


def lines_of(result: Result) -> Iterator[str]:
    """What a measurement found, one line for each of its rows and numbers, units behind."""
    numbers = json.loads(result.to_json())
    units = numbers.pop("units")

    def told(name: str, value: Any) -> str:
        text = f"{value:.4g}" if isinstance(value, float) else "–" if value is None else str(value)
        return f"{name} {text} {units[name]}" if name in units else f"{name} {text}"

    def line(row: dict[str, Any]) -> str:
        plain = [(name, value) for name, value in row.items() if not isinstance(value, list | dict)]
        return "  " + ", ".join(told(name, value) for name, value in plain)

    yield line(numbers)
    for rows in numbers.values():
        if isinstance(rows, list):
            yield from ("  " + line(row) for row in rows if isinstance(row, dict))
