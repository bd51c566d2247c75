"""Measurements while training: of a fixed sample, every so many epochs, for metrics.jsonl.

Nothing that is trained is touched: the network looks in evaluation mode and in float32, and
gradients are asked for by themselves. A run is the same with and without, also after a stop.
"""

import json
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.analysis import gradient_norms, measure
from torchcaps.analysis.by_name import TRACE_MEASUREMENTS, keep_for
from torchcaps.analysis.result import Result
from torchcaps.data import Batch, Images, sample_of
from torchcaps.errors import TorchcapsError
from torchcaps.models.images import evaluating
from torchcaps.models.own import as_network
from torchcaps.train.batches import brought
from torchcaps.train.loss import loss_parts
from torchcaps.train.measured_names import GRADIENTS
from torchcaps.train.recipe import Recipe
from torchcaps.train.seeds import MEASURE, seed_of

# Couplings of a convolutional layer fill megabytes an image.
IMAGES, AT_ONCE = 1000, 32
# Looked at before training, so that what cannot be measured is told now, not after an epoch.
TRIED = 8


class Sampled:
    """What a recipe measures of a seeded sample of at most 1,000 validation images."""

    def __init__(self, recipe: Recipe, images: Images):
        self.recipe, self.images = recipe, images
        self.index = sample_of(images, IMAGES, seed=seed_of(recipe.seed, MEASURE))

    def try_on(self, model: nn.Module) -> None:
        """Measure a few images, and say what cannot be measured of this network."""
        if not self.recipe.measure:
            return
        try:
            self._measured(model, self.index[:TRIED], step=0)
        except TorchcapsError as error:
            raise TorchcapsError(f"measure={', '.join(self.recipe.measure)}: {error}") from None

    def of_epoch(self, model: nn.Module, epoch: int, *, step: int) -> dict[str, Any]:
        """Give what a row of metrics has besides, under "measured", where it has its turn."""
        if not self.recipe.measure or epoch % self.recipe.measure_every:
            return {}
        return {"measured": self._measured(model, self.index, step=step)}

    def _measured(self, model: nn.Module, index: Tensor, *, step: int) -> dict[str, Any]:
        names = [name for name in self.recipe.measure if name != GRADIENTS]
        device = next(model.parameters()).device

        def batch(some: Tensor) -> Batch:
            return brought(self.images.batch(some), device)

        network = partial(as_network(model), keep=keep_for(names))
        kinds = [TRACE_MEASUREMENTS[name]() for name in names]
        batches = map(batch, index.split(AT_ONCE))
        with evaluating(model):
            results = measure(network, batches, kinds) if kinds else ()
            found: dict[str, Result] = dict(zip(names, results, strict=True))
            if GRADIENTS in self.recipe.measure:
                # Of as many images as an update goes by.
                few = batch(index[: self.recipe.batch_size])
                out = as_network(model)(few.pixels, few.labels, keep="last")
                loss = torch.stack([*loss_parts(self.recipe, out, few, step).values()]).sum()
                found[GRADIENTS] = gradient_norms(loss, out.trace)
        return {name: json.loads(each.to_json()) for name, each in found.items()}
