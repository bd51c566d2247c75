"""Studies: many trained networks, each trained once, and their numbers as records.

A study is a list of systems, a system is a recipe with its seeds, and a cell is one seed of one
recipe. A ledger is a folder that holds every cell; workers take cells from it, and records are
written as soon as all seeds of a system are there. `compare` puts finished runs side by side.
"""

from typing import TYPE_CHECKING

from torchcaps._lazy import lazily

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

# Runs load training and with it Lightning.
lazily(__name__)
