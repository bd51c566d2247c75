"""Studies: many trained networks, each trained once, and their numbers as records.

A study is a list of systems, a system is a recipe with its seeds, and a cell is one seed of one
recipe. A ledger is a folder that holds every cell; workers take cells from it, and records are
written as soon as all seeds of a system are there. `compare` puts finished runs side by side.
"""

from typing import TYPE_CHECKING

from torchcaps._lazy import lazily

if TYPE_CHECKING:
    from torchcaps.study.collect import record_of_runs as record_of_runs
    from torchcaps.study.comparison import Comparison as Comparison
    from torchcaps.study.comparison import Variant as Variant
    from torchcaps.study.comparison import compare as compare
    from torchcaps.study.cross_validation import CrossValidation as CrossValidation
    from torchcaps.study.cross_validation import crossval as crossval
    from torchcaps.study.intervals import Interval as Interval
    from torchcaps.study.intervals import mean_interval as mean_interval
    from torchcaps.study.paper import write_paper as write_paper
    from torchcaps.study.record import Record as Record
    from torchcaps.study.record import Seed as Seed
    from torchcaps.study.record import make_record as make_record
    from torchcaps.study.record import read_record as read_record
    from torchcaps.study.record import read_records as read_records
    from torchcaps.study.record import write_record as write_record

# Runs load training and with it Lightning.
lazily(__name__)
