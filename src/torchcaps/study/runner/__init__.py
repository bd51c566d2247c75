"""Studies that run: many trained networks, each trained once, and their numbers as records.

A study is a list of systems, a system is a recipe with its seeds, and a cell is one seed of one
recipe. A ledger is a folder that holds every cell; workers take cells from it, and records are
written as soon as all seeds of a system are there.
"""

from torchcaps.study.runner.go_on import going_on
from torchcaps.study.runner.labels import only_those
from torchcaps.study.runner.ledger import Ledger
from torchcaps.study.runner.of_claims import study_of, study_of_claims
from torchcaps.study.runner.outcome import Outcome, outcome_of
from torchcaps.study.runner.pool import run_study
from torchcaps.study.runner.settings import Settings
from torchcaps.study.runner.system import Cell, Study, System
from torchcaps.study.runner.watch import Progress, progress_of, watched

__all__ = [
    "Cell",
    "Ledger",
    "Outcome",
    "Progress",
    "Settings",
    "Study",
    "System",
    "going_on",
    "only_those",
    "outcome_of",
    "progress_of",
    "run_study",
    "study_of",
    "study_of_claims",
    "watched",
]
