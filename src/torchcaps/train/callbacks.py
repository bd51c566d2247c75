"""What happens between epochs: saving the state, writing metrics, telling how far it is."""

import time
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback, Checkpoint
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from torchcaps.train.run import Run

__all__ = ["SaveState", "ShowProgress"]


class SaveState(Checkpoint):
    """After every epoch: a row of metrics, then the state, each file replaced whole."""

    def __init__(self, run: Run):
        self.run = run
        self.started = 0.0

    def on_train_epoch_start(self, trainer: lightning.Trainer, module: Any) -> None:
        self.started = time.perf_counter()

    def on_train_epoch_end(self, trainer: lightning.Trainer, module: Any) -> None:
        epoch = trainer.current_epoch + 1
        # A run killed between the two writes has a row more than its state knows of.
        rows = [row for row in self.run.metrics() if row["epoch"] < epoch]
        measured = {name: float(value) for name, value in trainer.callback_metrics.items()}
        seconds = round(time.perf_counter() - self.started, 3)
        self.run.write_metrics([*rows, {"epoch": epoch, **measured, "seconds": seconds}])
        partial = self.run.state_file.with_suffix(".partial")
        trainer.save_checkpoint(partial)
        partial.replace(self.run.state_file)


class ShowProgress(Callback):
    """A bar with images a second and time left, and one line an epoch, all on standard error."""

    def __init__(self, label: str, images: int, batch_size: int):
        self.label = label
        self.images = images
        self.batch_size = batch_size
        # Plain lines, whatever a label holds.
        self.console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("images  {task.fields[rate]:.0f}/s"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.started = 0.0

    def on_train_start(self, trainer: lightning.Trainer, module: Any) -> None:
        total = self.images * (trainer.max_epochs or 0)
        done = self.images * trainer.current_epoch
        if done:
            self.console.print(f"{self.label}: continuing after epoch {trainer.current_epoch}")
        self.task = self.bar.add_task(self.label, total=total, completed=done, rate=0.0)
        self.bar.start()

    def on_train_epoch_start(self, trainer: lightning.Trainer, module: Any) -> None:
        self.started = time.perf_counter()

    def on_train_batch_end(
        self, trainer: lightning.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        seen = batch_idx * self.batch_size + len(batch.labels)
        rate = seen / (time.perf_counter() - self.started)
        self.bar.update(self.task, advance=len(batch.labels), rate=rate)

    def on_train_epoch_end(self, trainer: lightning.Trainer, module: Any) -> None:
        metrics = trainer.callback_metrics
        self.console.print(
            f"{self.label}: epoch {trainer.current_epoch + 1}/{trainer.max_epochs}  "
            f"loss {metrics['loss']:.3f}  "
            f"validation accuracy {metrics['validation_accuracy']:.1%}  "
            f"{time.perf_counter() - self.started:.0f} s"
        )

    def teardown(self, trainer: lightning.Trainer, module: Any, stage: str) -> None:
        self.bar.stop()
