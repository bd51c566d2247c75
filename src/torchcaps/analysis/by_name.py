"""Measurements that ask for nothing but images and what a network returns for them, by name."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from torchcaps.analysis.measure import Measurement
from torchcaps.types import Keep

Kind = TypeVar("Kind", bound=Callable[[], Measurement])

# Each is entered where it is defined.
TRACE_MEASUREMENTS: dict[str, Callable[[], Measurement]] = {}
# Those that ask for every iteration.
OF_STEPS = {"fixed-point"}


def measured_as(name: str, *, steps: bool = False) -> Callable[[Kind], Kind]:
    """Enter a measurement by the name that --measure and recipes take."""

    def enter(kind: Kind) -> Kind:
        TRACE_MEASUREMENTS[name] = kind
        if steps:
            OF_STEPS.add(name)
        return kind

    return enter


def keep_for(names: Sequence[str]) -> Keep:
    """Say what a network has to keep for these measurements."""
    return "last" if OF_STEPS.isdisjoint(names) else "steps"
