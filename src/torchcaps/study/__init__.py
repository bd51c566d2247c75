"""Studies: many trained networks, each trained once, and their numbers as records.

A study is a list of systems, a system is a recipe with its seeds, and a cell is one seed of one
recipe. A ledger is a folder that holds every cell; workers take cells from it, and records are
written as soon as all seeds of a system are there. `compare` puts finished runs side by side.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchcaps.study.collect import record_of_runs
    from torchcaps.study.comparison import Comparison, Variant, compare
    from torchcaps.study.cross_validation import CrossValidation, crossval
    from torchcaps.study.intervals import Interval, mean_interval
    from torchcaps.study.paper import write_paper
    from torchcaps.study.record import (
        Record,
        Seed,
        make_record,
        read_record,
        read_records,
        write_record,
    )

# Fetched when first used: runs load training and with it Lightning.
_NAMES = {
    **dict.fromkeys(("Comparison", "Variant", "compare"), "comparison"),
    "record_of_runs": "collect",
    **dict.fromkeys(("CrossValidation", "crossval"), "cross_validation"),
    "write_paper": "paper",
    **dict.fromkeys(("Interval", "mean_interval"), "intervals"),
    **dict.fromkeys(("Record", "Seed", "make_record"), "record"),
    **dict.fromkeys(("read_record", "read_records", "write_record"), "record"),
}

__all__ = [
    "Comparison",
    "CrossValidation",
    "Interval",
    "Record",
    "Seed",
    "Variant",
    "compare",
    "crossval",
    "make_record",
    "mean_interval",
    "read_record",
    "read_records",
    "record_of_runs",
    "write_paper",
    "write_record",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"torchcaps.study.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'torchcaps.study' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
