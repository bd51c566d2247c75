"""What an epoch tells of classes: the measures in which every class counts the same."""

from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from torchcaps.data import Batch
from torchcaps.train.batches import Batches
from torchcaps.train.class_measures import macro_values
from torchcaps.train.ranks import Ranks
from torchcaps.types import Output


class EpochClasses(Callback):
    """Logs validation_ with the name of each measure of all classes, of the held-out images; none
    where it is undefined.

    Validation is never cut off, so nothing of it is saved.
    """

    def __init__(self, validation: Batches, ranks: Ranks):
        self.validation, self.ranks = validation, ranks
        # Of this rank, batch by batch: scores and labels.
        self.seen: list[tuple[Output, Tensor]] = []

    def on_validation_epoch_start(self, trainer: lightning.Trainer, module: Any) -> None:
        self.seen = []

    def on_validation_batch_end(
        self,
        trainer: lightning.Trainer,
        module: Any,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        # A stand-in counts for nothing.
        if self.validation.share:
            self.seen.append((outputs["answers"], batch.labels))

    def on_validation_epoch_end(self, trainer: lightning.Trainer, module: Any) -> None:
        mine = [(out.scores.float().cpu(), labels.cpu()) for out, labels in self.seen]
        all_ranks = [each for some in self.ranks.gathered(mine) for each in some]
        scores, labels = (torch.cat(each) for each in zip(*all_ranks, strict=True))
        found = macro_values(Output(scores, self.seen[0][0].scores_are), labels)
        self.seen = []
        for name, value in found.items():
            module.log(f"validation_{name}", value, batch_size=1)
