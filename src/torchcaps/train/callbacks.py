"""What happens beside the steps: saving the state, writing metrics, telling how far it is."""

import math
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback, Checkpoint
from lightning.pytorch.loggers import Logger
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from torchcaps._ctrl_c import interrupt
from torchcaps.errors import Diverged, Interrupted
from torchcaps.train.batches import Batches
from torchcaps.train.class_measures import MEASURES
from torchcaps.train.epoch_sums import Sums, add, over_ranks, put, so_far
from torchcaps.train.folder.run import Run
from torchcaps.train.folder.state import RECIPE
from torchcaps.train.sampled import Sampled
from torchcaps.train.selecting import SelectBy

# How long a log file stays silent within an epoch.
QUIET_SECONDS = 30.0
# Within a long epoch the state is saved so often: that much work is lost by a crash, never more.
SAVE_SECONDS = 600.0
# Whose answer to Ctrl-C training takes over, and what then answers a second one.
SECOND: dict[Any, Any] = {
    signal.default_int_handler: signal.default_int_handler,
    interrupt: signal.SIG_DFL,
}


class SaveState(Checkpoint):
    """After every epoch: a row of metrics, then the state, each file replaced whole. The state also
    every ten minutes within an epoch, with what was measured so far.

    Asked to stop, by SIGTERM, by Ctrl-C, or because `until` has come (a moment of
    `time.monotonic`), it lets the step end, saves the state and raises `Interrupted`. Validation is
    not cut off: it ends, and the epoch with it. A second Ctrl-C does not wait.
    """

    def __init__(
        self,
        run: Run,
        *,
        until: float | None = None,
        loggers: Sequence[Logger] = (),
        sampled: Sampled | None = None,
    ):
        self.run, self.until, self.loggers, self.sampled = run, until, loggers, sampled
        self.started = 0.0
        self.terminated = False
        self.due = 0.0
        self.before_interrupt: Any = None
        # What an earlier stretch saw of this epoch.
        self.seconds = 0.0
        self.sums: Sums = {}

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "sums": self.sums}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seconds, self.sums = float(state_dict["seconds"]), dict(state_dict["sums"])

    def on_save_checkpoint(
        self, trainer: lightning.Trainer, module: Any, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint[RECIPE] = self.run.recipe.model_dump_json()

    def on_train_start(self, trainer: lightning.Trainer, module: Any) -> None:
        self.started = time.perf_counter()
        for logger in self.loggers:
            logger.log_hyperparams(self.run.recipe.model_dump())
        # In place of Lightning's, which ends without saving; it puts back what was there before.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)
            # Where a program of one's own answers Ctrl-C, it goes on doing so.
            if signal.getsignal(signal.SIGINT) in SECOND:
                self.before_interrupt = signal.signal(signal.SIGINT, self._on_sigint)
        self.due = time.monotonic() + SAVE_SECONDS

    def on_train_epoch_start(self, trainer: lightning.Trainer, module: Any) -> None:
        self.started = time.perf_counter()

    def on_train_batch_end(
        self, trainer: lightning.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.sums:
            if trainer.is_global_zero:
                put(trainer, add(so_far(trainer), self.sums))
            self.sums = {}
        # The last step of an epoch is followed by its end, and a state is saved there.
        last = trainer.should_stop or batch_idx + 1 == trainer.num_training_batches
        # Nor within an update, whose gradients no state holds.
        if last or (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        why = self._why_stop(trainer)
        if why or self._agreed(trainer, time.monotonic() >= self.due):
            self._save_within(trainer)
        if why:
            raise self._interrupted(why)

    def on_train_epoch_end(self, trainer: lightning.Trainer, module: Any) -> None:
        epoch = trainer.current_epoch + 1
        measured = {name: float(value) for name, value in trainer.callback_metrics.items()}
        for name, value in measured.items():
            if not math.isfinite(value):
                raise Diverged(
                    f"{name} became {value} in epoch {epoch}, so training diverged; take a smaller "
                    f"learning rate than {self.run.recipe.learning_rate:g}, in a new folder."
                )
        seconds = self.seconds + time.perf_counter() - self.started
        if trainer.is_global_zero:
            # A run killed between the two writes has a row more than its state knows of.
            rows = [row for row in self.run.metrics() if row["epoch"] < epoch]
            row = {**measured, "seconds": round(seconds, 3)}
            # Tables, which no logger takes.
            more = {}
            if self.sampled is not None:
                more = self.sampled.of_epoch(module.model, epoch, step=trainer.global_step)
            self.run.write_metrics([*rows, {"epoch": epoch, **row, **more}])
            for logger in self.loggers:
                logger.log_metrics(row, step=epoch)
                logger.save()
        self.seconds = 0.0
        self._save(trainer)
        if why := self._why_stop(trainer):
            raise self._interrupted(why)

    def teardown(self, trainer: lightning.Trainer, module: Any, stage: str) -> None:
        self._give_back()
        for logger in self.loggers:
            logger.finalize("success")

    def on_exception(
        self, trainer: lightning.Trainer, module: Any, exception: BaseException
    ) -> None:
        self._give_back()
        for logger in self.loggers:
            logger.finalize("failed")

    def _why_stop(self, trainer: lightning.Trainer) -> str:
        """Empty, or the reason that any rank has: all of them stop after the same step."""
        if self._agreed(trainer, self.terminated):
            return "training was told to stop"
        if self.until is not None and self._agreed(trainer, time.monotonic() >= self.until):
            return "the time budget is used up"
        return ""

    def _agreed(self, trainer: lightning.Trainer, here: bool) -> bool:
        """Whether any rank says so."""
        return trainer.strategy.reduce_boolean_decision(here, all=False)

    def _interrupted(self, why: str) -> Interrupted:
        return Interrupted(f"{why}; the same command continues {self.run.folder} from where it is.")

    def _on_sigterm(self, *_: Any) -> None:
        self.terminated = True

    def _on_sigint(self, *_: Any) -> None:
        # None where it came twice within a moment.
        signal.signal(signal.SIGINT, SECOND.get(self.before_interrupt, signal.SIG_DFL))
        self.before_interrupt = None
        self.terminated = True

    def _give_back(self) -> None:
        """Ctrl-C to who answered it before."""
        if self.before_interrupt is not None:
            signal.signal(signal.SIGINT, self.before_interrupt)
            self.before_interrupt = None

    def _save_within(self, trainer: lightning.Trainer) -> None:
        """The state in the middle of an epoch, which may go on after it."""
        before = self.seconds
        self.sums = over_ranks(trainer)
        self.seconds += time.perf_counter() - self.started
        self._save(trainer)
        self.sums, self.seconds = {}, before

    def _save(self, trainer: lightning.Trainer) -> None:
        self.due = time.monotonic() + SAVE_SECONDS
        partial = self.run.state_file.with_suffix(".partial")
        # All ranks take part, the first one writes.
        trainer.save_checkpoint(partial)
        if trainer.is_global_zero:
            self.run.put(partial, self.run.state_file)


class ShowProgress(Callback):
    """A bar with images a second and time left, and one line an epoch, all on standard error."""

    def __init__(self, label: str, batches: Batches, select_by: SelectBy = "loss"):
        self.label, self.batches, self.select_by = label, batches, select_by
        # Plain lines, whatever a label holds.
        self.console = Console(
            stderr=True,
            highlight=False,
            markup=False,
            soft_wrap=True,
            # Several devices are one run.
            quiet=batches.rank > 0,
        )
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
        # When this stretch of the epoch began, and how many of its images were seen before.
        self.started, self.before = 0.0, 0
        self.last_line_at = time.monotonic()

    def on_train_start(self, trainer: lightning.Trainer, module: Any) -> None:
        images = len(self.batches.images)
        total = images * (trainer.max_epochs or 0)
        self.before = self.batches.seen()
        done = images * trainer.current_epoch + self.before
        if self.before:
            self.console.print(
                f"{self.label}: continuing in epoch {trainer.current_epoch + 1} after "
                f"{self.before} of {images} images"
            )
        elif done:
            self.console.print(f"{self.label}: continuing after epoch {trainer.current_epoch}")
        self.task = self.bar.add_task(self.label, total=total, completed=done, rate=0.0)
        self.bar.start()
        self.started = time.perf_counter()

    def on_train_epoch_start(self, trainer: lightning.Trainer, module: Any) -> None:
        self.started, self.before = time.perf_counter(), 0

    def on_train_batch_end(
        self, trainer: lightning.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        seen = self.batches.seen()
        rate = (seen - self.before) / (time.perf_counter() - self.started)
        done = len(self.batches.images) * trainer.current_epoch + seen
        self.bar.update(self.task, completed=done, rate=rate)
        # A log file has no bar, but somebody who looks into it.
        if not self.console.is_terminal and time.monotonic() > self.last_line_at + QUIET_SECONDS:
            self.last_line_at = time.monotonic()
            left = (len(self.batches.images) * (trainer.max_epochs or 0) - done) / rate
            self.console.print(
                f"{self.label}: epoch {trainer.current_epoch + 1}/{trainer.max_epochs}  "
                f"{seen} of {len(self.batches.images)} images  {rate:.0f}/s  "
                f"about {left / 60:.0f} min left"
            )

    def on_train_epoch_end(self, trainer: lightning.Trainer, module: Any) -> None:
        metrics = trainer.callback_metrics
        # Where nothing is held out, the one of the training images as they were met.
        shown = "validation accuracy" if "validation_accuracy" in metrics else "accuracy"
        chosen = ""
        if self.select_by in MEASURES:
            value = metrics[f"validation_{self.select_by}"]
            chosen = f"{MEASURES[self.select_by].words} {value:.1%}  "
        pruned = "".join(
            f"{name} {metrics[name]:{form}}  "
            for name, form in (("sparsity", ".1%"), ("entropy", ".2f"))
            if name in metrics
        )
        self.console.print(
            f"{self.label}: epoch {trainer.current_epoch + 1}/{trainer.max_epochs}  "
            f"loss {metrics['loss']:.3f}  "
            f"{shown} {metrics[shown.replace(' ', '_')]:.1%}  {chosen}{pruned}"
            f"{time.perf_counter() - self.started:.0f} s"
        )

    def teardown(self, trainer: lightning.Trainer, module: Any, stage: str) -> None:
        self.bar.stop()

    def on_exception(
        self, trainer: lightning.Trainer, module: Any, exception: BaseException
    ) -> None:
        self.bar.stop()
