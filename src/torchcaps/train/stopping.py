"""When to stop before the last epoch, and which weights to keep. All of it survives a restart."""

from collections.abc import Callable
from typing import Any

from torchcaps.train.folder.run import Run
from torchcaps.train.loop import Loop, Watcher
from torchcaps.train.recipe import Recipe
from torchcaps.train.selecting import SelectBy, cost

# From this far below the target on, it is looked at between epochs too.
NEAR = 0.01


class StopAtAccuracy(Watcher):
    """Stop at the first check that finds `recipe.stop_at` or more.

    Accuracy is checked after every epoch, and once it has come near the target after every
    `recipe.stop_every` updates: within an epoch it may rise far above the target.
    """

    kept = ("near", "seen")

    def __init__(self, recipe: Recipe, accuracy: Callable[[], float]):
        assert recipe.stop_at is not None
        self.target, self.every = recipe.stop_at, recipe.stop_every
        self.accumulate = recipe.accumulate
        self.accuracy = accuracy
        self.near = False
        # The last check, and whether it was the one.
        self.seen: dict[str, Any] = {}

    def on_train_start(self, loop: Loop) -> None:
        # Cut off after the last epoch and before its result was written.
        loop.should_stop = loop.should_stop or bool(self.seen.get("reached"))

    def on_train_batch_end(self, loop: Loop, batch_idx: int) -> None:
        done = (batch_idx + 1) % self.accumulate == 0
        if self.near and done and loop.global_step % self.every == 0:
            self._check(loop)

    def on_validation_end(self, loop: Loop) -> None:
        if self.seen.get("step") != loop.global_step:
            self._check(loop)

    def _check(self, loop: Loop) -> None:
        accuracy = self.accuracy()
        self.near = self.near or accuracy >= self.target - NEAR
        reached = accuracy >= self.target
        self.seen = {"accuracy": accuracy, "step": loop.global_step, "reached": reached}
        loop.should_stop = loop.should_stop or reached


class StopWithoutProgress(Watcher):
    """Stop after `patience` epochs without a better one; `lowest` is the cost of the best."""

    kept = ("lowest", "since")

    def __init__(self, patience: int, select_by: SelectBy = "loss"):
        self.patience, self.select_by = patience, select_by
        self.lowest = float("inf")
        self.since = 0

    def on_train_start(self, loop: Loop) -> None:
        loop.should_stop = loop.should_stop or self.since >= self.patience

    def on_validation_end(self, loop: Loop) -> None:
        now = cost(loop.metrics, self.select_by)
        self.since = 0 if now < self.lowest else self.since + 1
        self.lowest = min(self.lowest, now)
        loop.should_stop = loop.should_stop or self.since >= self.patience


class KeepBest(Watcher):
    """Write down the network whenever it is the best, by `select_by`; `lowest` is its cost."""

    kept = ("lowest", "epoch")

    def __init__(self, run: Run, select_by: SelectBy = "loss"):
        self.run, self.select_by = run, select_by
        self.lowest = float("inf")
        self.epoch = 0

    def on_validation_end(self, loop: Loop) -> None:
        now = cost(loop.metrics, self.select_by)
        if now < self.lowest:
            self.lowest, self.epoch = now, loop.current_epoch + 1
            # The state is written later: cut off between the two, the same weights come again.
            if loop.ranks.rank == 0:
                self.run.put_network(loop.model, self.run.best_file)
