"""What an epoch tells of classes: the measures in which every class counts the same."""

import torch
from torch import Tensor

from torchcaps.data import Batch
from torchcaps.train.class_measures import macro_values
from torchcaps.train.loop import Loop, Watcher
from torchcaps.train.ranks import Ranks
from torchcaps.types import Output


class EpochClasses(Watcher):
    """Logs each measure of all classes on the held-out images, as validation_NAME; none where it is
    undefined.

    A run never stops within validation, so no state holds what is seen here.
    """

    def __init__(self, ranks: Ranks):
        self.ranks = ranks
        # Of this rank, batch by batch: scores and labels.
        self.seen: list[tuple[Output, Tensor]] = []

    def on_validation_batch_end(self, loop: Loop, out: Output, batch: Batch) -> None:
        self.seen.append((Output(out.scores, out.scores_are), batch.labels))

    def on_validation_epoch_end(self, loop: Loop) -> None:
        mine = [(out.scores.float().cpu(), labels.cpu()) for out, labels in self.seen]
        all_ranks = [each for some in self.ranks.gathered(mine) for each in some]
        scores, labels = (torch.cat(each) for each in zip(*all_ranks, strict=True))
        found = macro_values(Output(scores, self.seen[0][0].scores_are), labels)
        self.seen = []
        for name, value in found.items():
            loop.log(f"validation_{name}", value)
