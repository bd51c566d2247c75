"""What a job costs before it is run: FLOPs of its training, and hours on two cores.

FLOPs are those of `tasks.estimate`, a training step times all steps of all seeds; looking at a
trained network is not counted, nor is what fast convolutions of large kernels do in place of
products. Counting takes a second a network, so `steps.json` holds the counts for all planned jobs;
`python benchmarks/steps.py` writes it, and a network that is not there is counted when asked for.
Hours are FLOPs at RATE: `python benchmarks/throughput.py` on a CPU of two cores trained
ten networks at 30 to 89 GFLOP a second, half of them at 60 or more. Networks of few products, the
sign networks above all, take longer than so.
"""

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from torchcaps.study.job import Job
from torchcaps.study.same import plain
from torchcaps.study.sets import SETS, data_set
from torchcaps.tasks import estimate
from torchcaps.train import Recipe

__all__ = ["RATE", "STEPS_FILE", "Cost", "Step", "cost_of", "hours_of", "step_of"]

RATE = 60e9  # FLOPs a second
# A step takes no less than this, however small the network.
SECONDS_A_STEP = 0.005
STEPS_FILE = Path(__file__).parent / "steps.json"


class Step(NamedTuple):
    """All that the FLOPs of a training step depend on."""

    model: str
    image: tuple[int, int, int]
    n_classes: int
    batch_size: int
    options: tuple[tuple[str, Any], ...]

    @property
    def name(self) -> str:
        """Its name in the file."""
        sides = "x".join(map(str, self.image))
        chosen = [f"{name}={value}" for name, value in self.options]
        sizes = f"({sides} into {self.n_classes}, {self.batch_size} at once)"
        return " ".join([self.model, *chosen, sizes])

    @cache  # noqa: B019 (a step is a value, and there are a few hundred)
    def flops(self) -> int:
        """Counted on fake tensors, which takes about a second."""
        found = estimate(
            self.model,
            image=self.image,
            n_classes=self.n_classes,
            batch_size=self.batch_size,
            **dict(self.options),
        )
        return found.flops_step


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
        """As JSON has it."""
        return {"flops": self.flops, "hours_on_two_cores": self.hours, "is_most": self.is_most}


def cost_of(job: Job) -> Cost:
    """The cost of a job.

    Arguments:
        job: of a plan, `study.table("gu2021", 4).jobs` has some.

    >>> cost_of(job)
    """
    recipe = job.recipe()
    steps, flops = (job.seeds * count for count in _training(recipe))
    is_most = job.is_narrow or recipe.stop_at is not None or recipe.patience is not None
    return Cost(flops, _hours_of(steps, flops), is_most)


def hours_of(recipe: Recipe) -> float:
    """The hours of one training run; not a number for images whose count is not known."""
    if recipe.data not in SETS:
        return math.nan
    return _hours_of(*_training(recipe))


def step_of(recipe: Recipe) -> Step:
    """What the training step of a recipe is counted by."""
    data = data_set(recipe.data)
    channels, *sides = data.image
    height, width = recipe.crop or recipe.image_size or sides
    options = tuple(sorted(plain(recipe).options.items()))
    return Step(recipe.model, (channels, height, width), data.n_classes, recipe.batch_size, options)


def _training(recipe: Recipe) -> tuple[int, int]:
    """Steps and FLOPs of one run."""
    n_train = data_set(recipe.data).n_train
    images = recipe.train_images or round(n_train * (1 - recipe.validation_share))
    steps = recipe.epochs * math.ceil(images / recipe.batch_size)
    step = step_of(recipe)
    flops = _counted().get(step.name)
    return steps, steps * (step.flops() if flops is None else flops)


@cache
def _counted() -> dict[str, int]:
    counts: dict[str, int] = json.loads(STEPS_FILE.read_text(encoding="utf-8"))
    return counts


def _hours_of(steps: int, flops: int) -> float:
    return max(flops / RATE, steps * SECONDS_A_STEP) / 3600


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
