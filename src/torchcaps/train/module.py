"""A network as Lightning trains it: the loss, the optimiser and the rate of a recipe."""

import math
from typing import Any

import lightning
import torch
from torch import Tensor, nn

from torchcaps.data import Batch, JudgedBy
from torchcaps.errors import TorchcapsError, short
from torchcaps.models.own import as_network
from torchcaps.train.frozen import eval_frozen, freeze
from torchcaps.train.loop import validated
from torchcaps.train.loss import margin_at
from torchcaps.train.optimiser import make_optimiser, rate_factor, slower_weights
from torchcaps.train.recipe import Recipe
from torchcaps.train.seeds import STEP, seed_of
from torchcaps.train.update import loss_and_accuracy, refuse_lost


class Training(lightning.LightningModule):
    """A network as a LightningModule: the loss, the optimiser and the learning rate of a recipe.

    A Trainer of one's own trains it as `fit` trains a network, with any loader of (images, labels).
    What a step measures is logged by the epoch.

    Arguments:
        model: one of `create_model`, or a module of one's own that returns an `Output`.
        recipe: how to train; of a network and images of one's own it says model "own", data "own".
        steps_an_epoch: updates an epoch, by which a schedule counts epochs; as many as the Trainer
            makes of its loader if not given.
        judged_by: when an answer is right. "class": the highest score is that of the class. "top":
            the highest scores are those of all its classes. "set": those of one half or more are.

    >>> recipe = make_recipe(model="capsnet", data="own", epochs=5)
    >>> lightning.Trainer(max_epochs=5).fit(Training(model, recipe), loader)
    """

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        *,
        steps_an_epoch: int | None = None,
        judged_by: JudgedBy = "class",
    ):
        super().__init__()
        if not isinstance(model, nn.Module):
            raise TorchcapsError(
                f"Training takes a network that was made, an nn.Module, but got {short(model)}."
            )
        if not isinstance(recipe, Recipe):
            raise TorchcapsError(
                f"Training takes a recipe, what train.make_recipe returns, but got {short(recipe)}."
            )
        if "balanced" in (recipe.class_weights, recipe.sampling):
            raise TorchcapsError(
                "what is balanced goes by the labels of all training images, which Training does "
                "not see; give class_weights numbers, or the loader a sampler."
            )
        model = as_network(model)
        self.model = model
        freeze(model, recipe.freeze)
        self.recipe = recipe
        self.steps_an_epoch = steps_an_epoch
        self.judged_by: JudgedBy = judged_by

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # Whatever draws random numbers in a step draws the same after a resume.
        parts = () if self._batches_an_update() == 1 else (batch_idx,)
        torch.manual_seed(seed_of(self.recipe.seed, STEP, self.global_step, *parts))
        # Lightning puts the whole network into training mode.
        eval_frozen(self.model, self.recipe.freeze)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        batch = _named(batch)
        recipe, step = self.recipe, self.global_step
        margin = torch.tensor(margin_at(recipe, step), dtype=torch.float64)
        measured = loss_and_accuracy(self.model, recipe, batch, margin, self.judged_by)
        loss, value = measured["loss"], float(measured["loss"].detach())
        refuse_lost(value, f"the loss became {value} at step {step}", recipe)
        self.log_dict(measured, on_step=False, on_epoch=True, batch_size=len(batch.labels))
        return loss * self._counts_for(batch_idx)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        batch = _named(batch)
        _, measured = validated(self.model, self.recipe, batch, judged_by=self.judged_by)
        self.log_dict(measured, batch_size=len(batch.labels))

    def configure_optimizers(self) -> Any:
        weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        slower = slower_weights(self.recipe, self.model)
        optimiser = make_optimiser(self.recipe, weights, slower=slower)
        steps = self._updates_an_epoch()
        rate = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: rate_factor(self.recipe, step, steps)
        )
        return {
            "optimizer": optimiser,
            "lr_scheduler": {"scheduler": rate, "interval": "step"},
        }

    def _updates_an_epoch(self) -> int:
        """Count the updates by which a schedule counts epochs; any number where none is counted."""
        if self.steps_an_epoch is not None:
            return self.steps_an_epoch
        schedule = self.recipe.schedule
        if schedule == "constant" or self.recipe.decay_every is not None:
            return 1
        # Lightning itself does so only later.
        self.trainer.fit_loop.setup_data()
        batches = self.trainer.num_training_batches
        if math.isinf(batches):
            raise TorchcapsError(
                f'schedule = "{schedule}" changes the rate by epochs, but the loader has no '
                f"length, so nobody knows how many updates an epoch has; say so: "
                f"Training(model, recipe, steps_an_epoch=...)."
            )
        return max(1, math.ceil(batches / self.trainer.accumulate_grad_batches))

    def _batches_an_update(self) -> int:
        return 1 if self._trainer is None else int(self.trainer.accumulate_grad_batches)

    def _counts_for(self, batch_idx: int) -> float:
        """Give what a batch counts for: more than 1 where an epoch's last update has few."""
        every = self._batches_an_update()
        if every == 1:
            return 1.0
        batches = self.trainer.num_training_batches
        first = batch_idx - batch_idx % every
        return every / min(every, batches - first)


def _named(batch: Any) -> Batch:
    """Name images and labels, which are all that a loader of somebody else's gives."""
    return batch if isinstance(batch, Batch) else Batch(*batch)
