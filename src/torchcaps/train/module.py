"""A network as Lightning trains it: one loss, one optimiser, nothing else."""

import lightning
import torch
from torch import Tensor, nn

from torchcaps.data import Batch
from torchcaps.errors import TorchcapsError
from torchcaps.ops import (
    binary_cross_entropy_loss,
    cross_entropy_loss,
    margin_loss,
    reconstruction_loss,
)
from torchcaps.train.recipe import Recipe
from torchcaps.train.seeds import STEP, seed_of
from torchcaps.types import Output

__all__ = ["Training"]


class Training(lightning.LightningModule):
    """The loss that fits the scores plus weighted reconstruction, Adam."""

    def __init__(self, model: nn.Module, recipe: Recipe):
        super().__init__()
        self.model = model
        self.recipe = recipe

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # Whatever draws random numbers in a step draws the same after a resume.
        torch.manual_seed(seed_of(self.recipe.seed, STEP, self.global_step))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss, accuracy = self._measure(batch)
        if not bool(loss.isfinite()):
            value = float(loss.detach())
            raise TorchcapsError(
                f"the loss became {value} at step {self.global_step}, so training diverged; take a "
                f"smaller learning rate than {self.recipe.learning_rate:g}, in a new folder."
            )
        many = len(batch.labels)
        self.log("loss", loss, on_step=False, on_epoch=True, batch_size=many)
        self.log("accuracy", accuracy, on_step=False, on_epoch=True, batch_size=many)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        loss, accuracy = self._measure(batch)
        self.log("validation_loss", loss, batch_size=len(batch.labels))
        self.log("validation_accuracy", accuracy, batch_size=len(batch.labels))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.model.parameters(), lr=self.recipe.learning_rate, fused=True)

    def _measure(self, batch: Batch) -> tuple[Tensor, Tensor]:
        image, label, _ = batch
        out = self.model(image, label)
        loss = _classification_loss(out, label)
        if out.reconstruction is not None:
            weight = self.recipe.reconstruction_weight
            loss = loss + weight * reconstruction_loss(out.reconstruction, image)
        return loss, (out.scores.argmax(-1) == label).float().mean()


def _classification_loss(out: Output, label: Tensor) -> Tensor:
    """Margin loss of lengths, cross-entropy of logits, binary where classes are independent."""
    if out.scores_are == "lengths":
        return margin_loss(out.scores, label)
    if out.scores_are == "logits":
        return cross_entropy_loss(out.scores, label)
    return binary_cross_entropy_loss(out.scores, label, scores_are=out.scores_are)
