"""What happens beside the steps: saving the state, writing metrics, telling how far it is."""

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor
from torch.utils._pytree import tree_map_only

from torchcaps.errors import Interrupted
from torchcaps.train.batches import Batches
from torchcaps.train.class_measures import MEASURES
from torchcaps.train.folder.run import Run
from torchcaps.train.folder.state import write_state
from torchcaps.train.grouped import as_listed
from torchcaps.train.loggers import Logger
from torchcaps.train.loop import Loop, Watcher
from torchcaps.train.sampled import Sampled
from torchcaps.train.selecting import SelectBy
from torchcaps.train.told import Told
from torchcaps.train.update import refuse_lost

# How long a log file stays silent within an epoch.
QUIET_SECONDS = 30.0
# If the largest class has so many times the images of the smallest, accuracy says too little.
UNEVEN = 2
# On a GPU an epoch may take a second: so often at most a state is written then.
SELDOM_SECONDS = 30.0
# Within a long epoch the state is saved so often: that much work is lost by a crash, never more.
SAVE_SECONDS = 600.0
# How a state calls what steps measured.
PREFIX = "training_step."


class SaveState(Watcher):
    """After every epoch: a row of metrics, then the state, each file replaced whole. The state also
    every ten minutes within an epoch, with what was measured so far.

    Told to stop, or because `until` has come (a moment of `time.monotonic`), it lets the step end,
    saves the state and raises `Interrupted`. Validation is not cut off: it ends, and the epoch with
    it. A second Ctrl-C does not wait.

    On a GPU the state is written after an epoch only where the last one is half a minute old, and
    beside the training that goes on. A run that is killed trains the epochs that its state does not
    know once more.
    """

    def __init__(
        self,
        run: Run,
        *,
        until: float | None = None,
        loggers: Sequence[Logger] = (),
        sampled: Sampled | None = None,
        told: Told | None = None,
    ):
        self.run, self.until, self.loggers, self.sampled = run, until, loggers, sampled
        self.told = Told() if told is None else told
        self.started = 0.0
        self.due = self.saved = 0.0
        # A state that is being written, and who writes it.
        self.writing: Future[Path] | None = None
        self.writer = ThreadPoolExecutor(1)
        # What an earlier stretch saw of this epoch.
        self.seconds = 0.0
        self.sums: dict[str, tuple[Any, Any]] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "sums": self.sums}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seconds, self.sums = float(state_dict["seconds"]), dict(state_dict["sums"])

    def on_train_start(self, loop: Loop) -> None:
        self.started = time.perf_counter()
        for logger in self.loggers:
            logger.log_hyperparams(loop.recipe.model_dump())
        self.due = time.monotonic() + SAVE_SECONDS
        if loop.ranks.rank == 0:
            for name, (total, count) in self.sums.items():
                loop.update.sums[name.removeprefix(PREFIX)] = total.numpy()[()], int(count)
        self.sums = {}

    def on_train_epoch_start(self, loop: Loop) -> None:
        self.started = time.perf_counter()

    def on_train_batch_end(self, loop: Loop, batch_idx: int) -> None:
        # The last step of an epoch is followed by its end, and a state is saved there.
        last = loop.should_stop or loop.is_last_batch
        # Nor within an update, whose gradients no state holds.
        if last or (batch_idx + 1) % loop.recipe.accumulate:
            return
        why, is_due = self._why_stop(loop)
        if why or is_due:
            self._save_within(loop)
        if why:
            raise self._interrupted(why)

    def on_train_epoch_end(self, loop: Loop) -> None:
        epoch = loop.current_epoch + 1
        for name, value in loop.metrics.items():
            refuse_lost(value, f"{name} became {value} in epoch {epoch}", loop.recipe)
        seconds = self.seconds + time.perf_counter() - self.started
        if self.writing is not None and self.writing.done():
            self._put()
        if loop.ranks.rank == 0:
            # A run killed between the two writes has rows more than its state knows of.
            rows = [row for row in self.run.metrics() if row["epoch"] < epoch]
            row = {**loop.metrics, "seconds": round(seconds, 3)}
            # Tables, which no logger takes.
            more = {}
            if self.sampled is not None:
                more = self.sampled.of_epoch(loop.model, epoch, step=loop.global_step)
            self.run.write_metrics([*rows, {"epoch": epoch, **row, **more}])
            for logger in self.loggers:
                logger.log_metrics(row, step=epoch)
                logger.save()
        self.seconds = 0.0
        why, _ = self._why_stop(loop)
        # The best network is that of the state.
        at_once = why or loop.should_stop or epoch == loop.recipe.epochs
        at_once = at_once or loop.device.type == "cpu" or loop.recipe.keep == "best"
        if at_once or time.monotonic() >= self.saved + SELDOM_SECONDS:
            self._save(loop, beside=not at_once)
        if why:
            raise self._interrupted(why)

    def teardown(self, loop: Loop, *, failed: bool) -> None:
        self._put()
        self.writer.shutdown()
        for logger in self.loggers:
            logger.finalize("failed" if failed else "success")

    def _why_stop(self, loop: Loop) -> tuple[str, bool]:
        """Say why all ranks stop after this step, or nothing; and whether a state is due."""
        now = time.monotonic()
        is_late = self.until is not None and now >= self.until
        told, late, is_due = loop.ranks.any(self.told.to_stop, is_late, now >= self.due)
        why = "the time budget is used up" if late else ""
        return "training was told to stop" if told else why, is_due

    def _interrupted(self, why: str) -> Interrupted:
        return Interrupted(f"{why}; the same command continues {self.run.folder} from where it is.")

    def _save_within(self, loop: Loop) -> None:
        """Save the state in the middle of an epoch, which may go on after it."""
        loop.update.read()
        before = self.seconds
        self.sums = {
            f"{PREFIX}{name}": (torch.tensor(total), torch.tensor(count))
            for name, (total, count) in loop.over_ranks(loop.update.sums).items()
        }
        self.seconds += time.perf_counter() - self.started
        self._save(loop)
        self.sums, self.seconds = {}, before

    def _save(self, loop: Loop, *, beside: bool = False) -> None:
        self.saved = time.monotonic()
        self.due = self.saved + SAVE_SECONDS
        if loop.ranks.rank:
            return
        self._put()
        partial = self.run.state_file.with_suffix(".partial")
        if beside:
            # Memory that a GPU copies to by itself, before the next step.
            state = tree_map_only(Tensor, copied, loop.state())
            is_there = torch.cuda.current_stream().record_event()
            self.writing = self.writer.submit(_write, state, partial, is_there)
            return
        loop.save(partial)
        self.run.put(partial, self.run.state_file)

    def _put(self) -> None:
        """Wait for the state that is being written, and put it in its place."""
        writing, self.writing = self.writing, None
        if writing is not None:
            self.run.put(writing.result(), self.run.state_file)


def copied(tensor: Tensor) -> Tensor:
    """Give a copy in this machine's memory, where it is when the stream has come so far."""
    there = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
    return there.copy_(tensor, non_blocking=True)


def _write(state: dict[str, Any], path: Path, is_there: torch.cuda.Event) -> Path:
    is_there.synchronize()
    write_state(state, path)
    return path


class ShowProgress(Watcher):
    """A bar with images a second and time left, and one line an epoch, all on standard error.

    A run beside others has no bar, since a terminal shows one at a time.
    """

    def __init__(
        self, label: str, batches: Batches, select_by: SelectBy = "loss", *, beside: bool = False
    ):
        self.label, self.batches, self.measure = label, batches, select_by
        counts = Counter(as_listed(batches.images).labels).values()
        if select_by not in MEASURES and counts and max(counts) > UNEVEN * min(counts):
            self.measure = "balanced_accuracy"
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
            disable=beside or not self.console.is_terminal,
        )
        # When this stretch of the epoch began, and how many of its images were seen before.
        self.started, self.before = 0.0, 0
        self.last_line_at = time.monotonic()

    def on_train_start(self, loop: Loop) -> None:
        images = len(self.batches.images)
        total = images * loop.recipe.epochs
        self.before = self.batches.seen()
        done = images * loop.current_epoch + self.before
        if self.before:
            self.console.print(
                f"{self.label}: continuing in epoch {loop.current_epoch + 1} after "
                f"{self.before} of {images} images"
            )
        elif done:
            self.console.print(f"{self.label}: continuing after epoch {loop.current_epoch}")
        self.task = self.bar.add_task(self.label, total=total, completed=done, rate=0.0)
        self.bar.start()
        self.started = time.perf_counter()

    def on_train_epoch_start(self, loop: Loop) -> None:
        self.started, self.before = time.perf_counter(), 0

    def on_train_batch_end(self, loop: Loop, batch_idx: int) -> None:
        seen = self.batches.seen()
        rate = (seen - self.before) / (time.perf_counter() - self.started)
        done = len(self.batches.images) * loop.current_epoch + seen
        self.bar.update(self.task, completed=done, rate=rate)
        # A log file has no bar, but somebody who looks into it.
        if not self.console.is_terminal and time.monotonic() > self.last_line_at + QUIET_SECONDS:
            self.last_line_at = time.monotonic()
            left = (len(self.batches.images) * loop.recipe.epochs - done) / rate
            self.console.print(
                f"{self.label}: epoch {loop.current_epoch + 1}/{loop.recipe.epochs}  "
                f"{seen} of {len(self.batches.images)} images  {rate:.0f}/s  "
                f"about {left / 60:.0f} min left"
            )

    def on_train_epoch_end(self, loop: Loop) -> None:
        metrics = loop.metrics
        # Where nothing is held out, the one of the training images as they were met.
        shown = "validation accuracy" if "validation_accuracy" in metrics else "accuracy"
        chosen = ""
        if self.measure in MEASURES and "validation_accuracy" in metrics:
            value = metrics.get(f"validation_{self.measure}")
            told = "–" if value is None else f"{value:.1%}"
            chosen = f"{MEASURES[self.measure].words} {told}  "
        pruned = "".join(
            f"{name} {metrics[name]:{form}}  "
            for name, form in (("sparsity", ".1%"), ("entropy", ".2f"))
            if name in metrics
        )
        self.console.print(
            f"{self.label}: epoch {loop.current_epoch + 1}/{loop.recipe.epochs}  "
            f"loss {metrics['loss']:.3f}  "
            f"{shown} {metrics[shown.replace(' ', '_')]:.1%}  {chosen}{pruned}"
            f"{time.perf_counter() - self.started:.0f} s"
        )

    def teardown(self, loop: Loop, *, failed: bool) -> None:
        self.bar.stop()
