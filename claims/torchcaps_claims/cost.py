"""What a job costs before it is run: FLOPs of its training, and hours on two cores.

`steps.json` holds the FLOPs of a step for all planned jobs, since counting takes a second a
network; `python benchmarks/steps.py` writes it.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps.study.cost import COUNTED, hours_on_two_cores, steps_and_flops
from torchcaps_claims.job import Job

STEPS_FILE = Path(__file__).parent / "steps.json"
COUNTED.update(json.loads(STEPS_FILE.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Cost:
    """All seeds of a job together. `is_most`: training may end earlier than its last epoch, or its
    network be narrower."""

    flops: int
    hours: float
    is_most: bool = False

    def __add__(self, other: "Cost") -> "Cost":
        flops, hours = self.flops + other.flops, self.hours + other.hours
        return Cost(flops, hours, self.is_most or other.is_most)

    def text(self, *, gpu_rate: float | None = None) -> str:
        """Both in words; with the FLOPs a second of a GPU, the hours on it too."""
        most = "at most " if self.is_most else ""
        on_cores = f"{most}{_flops(self.flops)}, {_in_words(self.hours)} on two cores"
        if gpu_rate is None:
            return on_cores
        return f"{on_cores}, at least {_in_words(self.hours_at(gpu_rate))} on one GPU"

    def hours_at(self, rate: float) -> float:
        """Hours on a machine that makes so many FLOPs a second, if no step is too small for it."""
        return self.flops / rate / 3600

    def numbers(self) -> dict[str, Any]:
        """Give the cost as JSON has it."""
        return {"flops": self.flops, "hours_on_two_cores": self.hours, "is_most": self.is_most}


def cost_of(job: Job) -> Cost:
    """The cost of a job of a plan."""
    recipe = job.recipe()
    steps, flops = (job.seeds * count for count in steps_and_flops(recipe))
    is_most = job.is_narrow or recipe.stop_at is not None or recipe.patience is not None
    return Cost(flops, hours_on_two_cores(steps, flops), is_most)


def _flops(count: float) -> str:
    for unit, size in (("EFLOP", 1e18), ("PFLOP", 1e15), ("TFLOP", 1e12)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1e9:,.1f} GFLOP"


def _in_words(hours: float) -> str:
    if hours < 1 / 60:
        return f"{hours * 3600:.2g} s"
    if hours < 1:
        return f"{hours * 60:.0f} min"
    return f"{hours:,.1f} h" if hours < 100 else f"{hours:,.0f} h"
