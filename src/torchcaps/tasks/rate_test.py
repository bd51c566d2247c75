"""Which learning rate? A few steps at rates that grow from tiny to far too large.

The loss stays where it is as long as the rate is too small, falls, and shoots up. The suggested
rate is where the smoothed loss falls fastest against the logarithm of the rate.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchcaps._checks import check_count
from torchcaps.data import Images
from torchcaps.errors import TorchcapsError, short
from torchcaps.train.batches import Batches
from torchcaps.train.frozen import freeze
from torchcaps.train.images import as_shown, images_of
from torchcaps.train.loss import loss_parts
from torchcaps.train.optimiser import make_optimiser
from torchcaps.train.recipe import Recipe
from torchcaps.train.start import check_own, initial_model, take_frozen
from torchcaps.train.weighing import weighed

# How much of the smoothed loss is the past; a loss so many times the lowest has shot up.
NEIGHBOUR, TOO_MUCH = 0.9, 3.0
FEWEST, MOST = 10, 100_000
# What of a recipe has a part in these steps.
OF_USE = {
    *("model", "options", "standardise", "channels_last", "freeze", "protocol"),
    *("data", "image_size", "groups", "fold", "crop", "batch_size", "seed"),
    *("loss", "m_plus", "m_minus", "lambda_", "spread_steps", "reconstruction_weight"),
    *("focal_gamma", "class_weights", "sampling"),
    *("optimiser", "momentum", "weight_decay"),
}


@dataclass(frozen=True)
class RateTest:
    """The loss after a step at each rate; `suggested` is None where it never falls."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]
    suggested: float | None

    def numbers(self) -> dict[str, Any]:
        """Give everything measured, as JSON can hold it."""
        return asdict(self)

    def text(self) -> str:
        """Say the finding for people."""
        seen = f"{len(self.rates)} steps at learning rates from {self.rates[0]:.1g} to "
        seen += f"{self.rates[-1]:.1g}"
        if self.suggested is None:
            return f"{seen}: the loss never falls; torchcaps doctor looks for the reason"
        return (
            f"{seen}: the loss falls fastest at {self.suggested:.1g}; take that, or a third of it "
            f"if training is restless"
        )


def rate_test(
    recipe: Recipe,
    *,
    root: Path | None = None,
    own: Images | None = None,
    model: nn.Module | None = None,
    low: float = 1e-6,
    high: float = 1.0,
    steps: int = 100,
    trunk: Path | None = None,
) -> RateTest:
    """Train the recipe's network for some steps at growing rates. Nothing is written.

    Arguments:
        recipe: its network, images, batches, loss and optimiser are taken, its learning rate and
            schedule are not.
        root: where the data lies, for data sets that are files.
        own: training images of your own, for a recipe with data "own".
        model: a module of your own, for a recipe with model "own"; it is trained in place.
        low: the first rate.
        high: the last one; it ends before where the loss shoots up.
        steps: how many there are, from 10 to 100,000.
        trunk: the weights of its frozen trunk, if it has one.

    >>> rate_test(recipe).suggested
    """
    _check_asked(recipe, low, high, steps)
    images = _images(recipe, root, own, model)
    network = initial_model(recipe, images, model)
    take_frozen(network, trunk, has_weights=False)
    freeze(network, recipe.freeze)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network.to(device).train()
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    optimiser = make_optimiser(recipe, weights)
    rates = [low * (high / low) ** (k / (steps - 1)) for k in range(steps)]
    losses: list[float] = []
    recipe = weighed(recipe, images)
    even = recipe.sampling == "balanced"
    batches = Batches(images, recipe.batch_size, seed=recipe.seed, balanced=even)
    endless = _again_and_again(batches)
    # A step shows in the loss of the next batch.
    for rate in (*rates, None):
        batch = next(endless)
        parts = None if batch.parts is None else batch.parts.to(device)
        batch = batch._replace(
            pixels=batch.pixels.to(device), labels=batch.labels.to(device), parts=parts
        )
        out = network(batch.pixels, batch.labels)
        loss = torch.stack(list(loss_parts(recipe, out, batch, 0).values())).sum()
        losses.append(float(loss.detach()))
        shoots_up = not math.isfinite(losses[-1]) or losses[-1] > TOO_MUCH * min(losses)
        if shoots_up or rate is None:
            break
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    kept = (losses if math.isfinite(losses[-1]) else losses[:-1])[1:]
    if not kept:
        raise TorchcapsError(
            f"the loss is {losses[-1]:g} at the first rate already, {low:g}; torchcaps doctor "
            f"looks for the reason, or begin with a lower rate."
        )
    smoothed = _smoothed(kept)
    tried = rates[: len(kept)]
    return RateTest(tuple(tried), tuple(kept), tuple(smoothed), steepest(tried, smoothed))


def _images(
    recipe: Recipe, root: Path | None, own: Images | None, model: nn.Module | None
) -> Images:
    """Load the images that training would see; what the recipe and the call say must fit
    together."""
    check_own(recipe, model)
    if isinstance(own, tuple):
        raise TorchcapsError(
            "own takes the training images alone, since nothing is tested here; leave the test "
            "images out: own=train."
        )
    if (own is None) == (recipe.data == "own"):
        given = "no images were given" if own is None else "images of your own were given"
        raise TorchcapsError(
            f'the recipe says data "{recipe.data}", but {given}; data "own" and own=images go '
            f"together."
        )
    return images_of(recipe, "train", root=root) if own is None else as_shown(recipe, own)


def check_of_use(fields: Iterable[str]) -> None:
    """Refuse fields of a recipe that somebody sets though they change nothing here.

    Arguments:
        fields: their names.
    """
    for name in fields:
        if name not in OF_USE:
            why = {
                "learning_rate": "the rates go from --low to --high",
                "accumulate": "every step is of one batch, whose size is --set batch_size=…",
                "epochs": "the number of steps is --steps",
            }.get(name, "it has no part in these few steps")
            raise TorchcapsError(
                f"{name} would do nothing in a test of rates: {why}; leave it out."
            )


def steepest(rates: Sequence[float], losses: Sequence[float]) -> float | None:
    """Find the rate at which losses fall fastest against its logarithm, over a tenth of them at
    once; None where they fall nowhere."""
    reach = max(1, len(rates) // 10)
    slopes = [
        (losses[k + reach] - losses[k]) / math.log(rates[k + reach] / rates[k])
        for k in range(len(rates) - reach)
    ]
    if not slopes or min(slopes) >= 0:
        return None
    k = slopes.index(min(slopes))
    return math.sqrt(rates[k] * rates[k + reach])


def _check_asked(recipe: object, low: float, high: float, steps: int) -> None:
    if not isinstance(recipe, Recipe):
        raise TorchcapsError(
            f"rate_test takes a recipe, what train.make_recipe returns, but got {short(recipe)}."
        )
    if not 0 < low < high:
        raise TorchcapsError(
            f"the lowest rate must be above 0 and below the highest, but they came as {low:g} and "
            f"{high:g}."
        )
    if isinstance(steps, int) and steps > MOST:
        raise TorchcapsError(
            f"a slope is seen in some hundred steps, and more than {MOST:,} would be training, but "
            f"{short(steps)} were asked for; take 100."
        )
    check_count("steps", steps, least=FEWEST, so="a slope is not seen in fewer")


def _again_and_again(batches: Batches) -> Any:
    while True:
        yield from batches


def _smoothed(losses: Sequence[float]) -> list[float]:
    """Take a mean in which a loss counts 0.9 of what its neighbour does, before and after: one of
    those before alone would come late, and name too high a rate."""
    before, after = _sums(losses), _sums(losses[::-1])[::-1]
    return [
        (left[0] + right[0] - loss) / (left[1] + right[1] - 1)
        for left, right, loss in zip(before, after, losses, strict=True)
    ]


def _sums(losses: Sequence[float]) -> list[tuple[float, float]]:
    """Sum all up to each loss, and that of their weights."""
    found, total, weight = [], 0.0, 0.0
    for loss in losses:
        total, weight = NEIGHBOUR * total + loss, NEIGHBOUR * weight + 1
        found.append((total, weight))
    return found
