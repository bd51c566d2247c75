"""What a job costs before it is run: FLOPs of its training, and hours on two cores.

FLOPs are those of `tasks.estimate`, a training step times all steps of all seeds; looking at a
trained network is not counted, nor is what fast convolutions of large kernels do in place of
products. Hours are FLOPs at RATE: `python benchmarks/throughput.py` on a CPU of two cores trained
ten networks at 30 to 89 GFLOP a second, half of them at 60 or more. Networks of few products, the
sign networks above all, take longer than so.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from torchcaps.study.job import Job
from torchcaps.study.sets import data_set
from torchcaps.tasks import estimate

__all__ = ["RATE", "Cost", "cost_of"]

RATE = 60e9  # FLOPs a second
# A step takes no less than this, however small the network.
SECONDS_A_STEP = 0.005


@dataclass(frozen=True)
class Cost:
    """All seeds of a job together. `is_most`: training may end earlier than its last epoch."""

    flops: int
    hours: float
    is_most: bool = False

    def __add__(self, other: "Cost") -> "Cost":
        flops, hours = self.flops + other.flops, self.hours + other.hours
        return Cost(flops, hours, self.is_most or other.is_most)

    def text(self) -> str:
        """Both in words."""
        most = "at most " if self.is_most else ""
        return f"{most}{_flops(self.flops)}, {_hours(self.hours)} on two cores"

    def numbers(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"flops": self.flops, "hours_on_two_cores": self.hours, "is_most": self.is_most}


def cost_of(job: Job) -> Cost | None:
    """The cost of a job; None while it needs something to be trained."""
    if job.lacks_to_train:
        return None
    recipe = job.recipe()
    images = round(data_set(job.train).n_train * (1 - recipe.validation_share))
    steps = job.seeds * recipe.epochs * math.ceil(images / recipe.batch_size)
    flops = steps * _step(
        job.model,
        job.image,
        data_set(job.train).n_classes,
        recipe.batch_size,
        tuple(job.options.items()),
    )
    hours = max(flops / RATE, steps * SECONDS_A_STEP) / 3600
    return Cost(flops, hours, recipe.stop_at is not None or recipe.patience is not None)


@cache
def _step(
    model: str,
    image: tuple[int, int, int],
    n_classes: int,
    batch_size: int,
    options: tuple[tuple[str, Any], ...],
) -> int:
    found = estimate(
        model, image=image, n_classes=n_classes, batch_size=batch_size, **dict(options)
    )
    return found.flops_step


def _flops(count: float) -> str:
    for unit, size in (("EFLOP", 1e18), ("PFLOP", 1e15), ("TFLOP", 1e12)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1e9:,.1f} GFLOP"


def _hours(hours: float) -> str:
    if hours < 1:
        return f"{hours * 60:.0f} min"
    return f"{hours:,.1f} h" if hours < 100 else f"{hours:,.0f} h"
