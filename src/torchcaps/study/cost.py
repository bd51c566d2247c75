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
from torchcaps.study.sets import SETS, data_set
from torchcaps.tasks import estimate
from torchcaps.train import Recipe

__all__ = ["RATE", "Cost", "cost_of", "hours_of"]

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
        return f"{most}{_flops(self.flops)}, {_in_words(self.hours)} on two cores"

    def numbers(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"flops": self.flops, "hours_on_two_cores": self.hours, "is_most": self.is_most}


def cost_of(job: Job) -> Cost | None:
    """The cost of a job; None while it needs something to be trained."""
    if job.lacks_to_train:
        return None
    recipe = job.recipe()
    steps, flops = (job.seeds * count for count in _training(recipe))
    is_most = recipe.stop_at is not None or recipe.patience is not None
    return Cost(flops, _hours_of(steps, flops), is_most)


def hours_of(recipe: Recipe) -> float:
    """The hours of one training run; not a number for images whose count is not known."""
    if recipe.data not in SETS:
        return math.nan
    return _hours_of(*_training(recipe))


def _training(recipe: Recipe) -> tuple[int, int]:
    """Steps and FLOPs of one run."""
    data = data_set(recipe.data)
    images = recipe.train_images or round(data.n_train * (1 - recipe.validation_share))
    steps = recipe.epochs * math.ceil(images / recipe.batch_size)
    channels, *sides = data.image
    height, width = recipe.image_size or sides
    options = tuple(recipe.options.items())
    step = _step(
        recipe.model, (channels, height, width), data.n_classes, recipe.batch_size, options
    )
    return steps, steps * step


def _hours_of(steps: int, flops: int) -> float:
    return max(flops / RATE, steps * SECONDS_A_STEP) / 3600


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


def _in_words(hours: float) -> str:
    if hours < 1:
        return f"{hours * 60:.0f} min"
    return f"{hours:,.1f} h" if hours < 100 else f"{hours:,.0f} h"
