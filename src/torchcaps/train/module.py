"""A network as Lightning trains it: the loss, the optimiser and the rate of a recipe."""

from typing import Any

import lightning
import torch
from torch import Tensor, nn

from torchcaps.data import Batch, JudgedBy
from torchcaps.errors import Diverged
from torchcaps.train.answers import is_correct
from torchcaps.train.loss import loss_parts
from torchcaps.train.optimiser import make_optimiser, rate_factor
from torchcaps.train.recipe import Recipe
from torchcaps.train.seeds import STEP, seed_of

__all__ = ["TRAINING_SAMPLE", "Training"]

# How measures after an epoch begin where nothing is held out: they are of training images.
TRAINING_SAMPLE = "training_sample"


class Training(lightning.LightningModule):
    """One step of training, one of validation; what they measure is logged by the epoch."""

    def __init__(
        self, model: nn.Module, recipe: Recipe, *, steps_an_epoch: int, judged_by: JudgedBy
    ):
        super().__init__()
        self.model = model
        self.recipe = recipe
        self.steps_an_epoch = steps_an_epoch
        self.judged_by: JudgedBy = judged_by

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # Whatever draws random numbers in a step draws the same after a resume.
        torch.manual_seed(seed_of(self.recipe.seed, STEP, self.global_step))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        parts, accuracy = self._measure(batch)
        loss = torch.stack(list(parts.values())).sum()
        if not bool(loss.isfinite()):
            value = float(loss.detach())
            raise Diverged(
                f"the loss became {value} at step {self.global_step}, so training diverged; take a "
                f"smaller learning rate than {self.recipe.learning_rate:g}, in a new folder."
            )
        measured = {"loss": loss, **(parts if len(parts) > 1 else {}), "accuracy": accuracy}
        self.log_dict(measured, on_step=False, on_epoch=True, batch_size=len(batch.labels))
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        parts, accuracy = self._measure(batch)
        # Without the reconstruction, which a decoder makes of the class that the label names.
        loss = parts["classification_loss"]
        shown = "validation" if self.recipe.validation_share else TRAINING_SAMPLE
        measured = {f"{shown}_loss": loss, f"{shown}_accuracy": accuracy}
        self.log_dict(measured, batch_size=len(batch.labels))

    def configure_optimizers(self) -> Any:
        optimiser = make_optimiser(self.recipe, self.model.parameters())
        rate = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: rate_factor(self.recipe, step, self.steps_an_epoch)
        )
        return {
            "optimizer": optimiser,
            "lr_scheduler": {"scheduler": rate, "interval": "step"},
        }

    def _measure(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        out = self.model(batch.pixels, batch.labels)
        parts = loss_parts(self.recipe, out, batch, self.global_step)
        right = is_correct(out, batch.labels, judged_by=self.judged_by)
        return parts, right.float().mean()
