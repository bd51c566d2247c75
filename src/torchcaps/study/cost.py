"""What training costs before it is run: FLOPs, and hours on two cores.

FLOPs are those of `tasks.estimate`: one training step, times all steps; fast convolutions count as
plain ones. Hours are FLOPs at RATE: `python benchmarks/throughput.py` on a CPU of two cores trained
ten networks at 30 to 89 GFLOP a second, half of them at 60 or more. Networks of few products, the
sign networks above all, take longer than this says.
"""

import math
from functools import cache
from typing import Any, NamedTuple

from torchcaps.data.registry import SETS, data_set
from torchcaps.study.same import plain
from torchcaps.tasks import estimate
from torchcaps.train import Recipe

RATE = 60e9  # FLOPs a second
# A step takes no less than this, however small the network.
SECONDS_A_STEP = 0.005
# FLOPs of a training step, by the name of the step; whoever plans many networks adds theirs.
COUNTED: dict[str, int] = {}


class Step(NamedTuple):
    """All that the FLOPs of a training step depend on."""

    model: str
    image: tuple[int, int, int]
    n_classes: int
    batch_size: int
    options: tuple[tuple[str, Any], ...]

    @property
    def name(self) -> str:
        """Name the step, as the file of counts does."""
        sides = "x".join(map(str, self.image))
        chosen = [f"{name}={value}" for name, value in self.options]
        sizes = f"({sides} into {self.n_classes}, {self.batch_size} at once)"
        return " ".join([self.model, *chosen, sizes])

    @cache  # noqa: B019 (a step is a value, and there are a few hundred)
    def flops(self) -> int:
        """Count on fake tensors, which takes about a second."""
        found = estimate(
            self.model,
            image=self.image,
            n_classes=self.n_classes,
            batch_size=self.batch_size,
            **dict(self.options),
        )
        return found.flops_step


def hours_of(recipe: Recipe) -> float:
    """Estimate the hours of one training run; NaN for a data set whose size is not known."""
    if recipe.data not in SETS:
        return math.nan
    return hours_on_two_cores(*steps_and_flops(recipe))


def step_of(recipe: Recipe) -> Step:
    data = data_set(recipe.data)
    channels, *sides = data.image
    height, width = recipe.crop or recipe.image_size or sides
    options = tuple(sorted(plain(recipe).options.items()))
    return Step(recipe.model, (channels, height, width), data.n_classes, recipe.batch_size, options)


def steps_and_flops(recipe: Recipe) -> tuple[int, int]:
    n_train = data_set(recipe.data).n_train
    images = recipe.train_images or round(n_train * (1 - recipe.validation_share))
    steps = recipe.epochs * math.ceil(images / recipe.batch_size)
    step = step_of(recipe)
    flops = COUNTED.get(step.name)
    return steps, steps * (step.flops() if flops is None else flops)


def hours_on_two_cores(steps: int, flops: int) -> float:
    return max(flops / RATE, steps * SECONDS_A_STEP) / 3600
