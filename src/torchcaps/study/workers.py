"""Workers: what a pool knows of them, and those that are processes of this machine."""

import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import partial
from io import TextIOWrapper
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TextIO

import torch

from torchcaps._paths import own_file
from torchcaps.errors import Interrupted, TorchcapsError
from torchcaps.study.ledger import Ledger
from torchcaps.study.settings import Settings
from torchcaps.study.system import Cell
from torchcaps.study.work import Terms, work
from torchcaps.train.own_code import import_file

# What a worker process ends with that saved its state and stopped.
STOPPED = 130


class End(NamedTuple):
    """How a worker came to its end, and the cell that it was at: "done" found no cell to take,
    "stopped" saved a state and was not to go on, "killed" died, "lost" lost its machine."""

    how: Literal["done", "stopped", "killed", "lost"]
    cell: str | None = None


class Worker(Protocol):
    """Takes cells until none is left. The pool starts it, watches it, and asks how it ended."""

    def is_alive(self) -> bool:
        """Say whether it still works, or waits for a place to work at."""

    def end(self) -> End:
        """Say how it ended. Raises the sentence of an error that another worker would meet too."""

    def terminate(self) -> None:
        """Ask it to save its state and stop."""

    def join(self) -> None:
        """Wait until it has stopped."""


# Starts the worker of a number, which takes some cells.
Hire = Callable[[Sequence[Cell], int], Worker]


def serve(
    cells: Sequence[Cell], settings: Settings, number: int, parent: int | None = None
) -> bool:
    """Take cells in a process of its own, which speaks into a file, and say whether it came to an
    end: False if it was told to save its state and stop."""
    ledger = Ledger(settings.folder)
    ledger.folder.mkdir(parents=True, exist_ok=True)
    with _log(ledger.folder / f"worker{number}.log") as talk, redirect_stderr(talk):
        for file in settings.imports:
            import_file(file)
        try:
            terms = Terms(settings.root, settings.until)
            work(cells, ledger, terms, parent=parent, together=settings.together)
        except Interrupted as stop:
            print(stop, file=talk)
            return False
    return True


def _log(path: Path) -> TextIO:
    """Open a log to append to; a link or a pipe that somebody laid there makes place for it."""
    about = ("the log of a worker", "run the study again")
    try:
        file = own_file(path, *about)
    except TorchcapsError:
        path.unlink()
        file = own_file(path, *about)
    return TextIOWrapper(file, encoding="utf-8", line_buffering=True)


@contextmanager
def here(settings: Settings, ledger: Ledger) -> Iterator[Hire]:
    yield lambda cells, number: _Process(cells, settings, number, ledger)


class _Process(SpawnProcess):
    """A worker that is a process of this machine."""

    def __init__(self, cells: Sequence[Cell], settings: Settings, number: int, ledger: Ledger):
        super().__init__()
        self._settings, self._number, self._ledger = settings, number, ledger
        self._serve = partial(serve, cells, settings, number, os.getpid())
        self.start()

    def run(self) -> None:
        """Serve with a share of the cores, or one of the GPUs."""
        if self._settings.device == "cpu":
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        elif torch.cuda.device_count() > 1:
            torch.cuda.set_device(self._number % torch.cuda.device_count())
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // self._settings.jobs))
        # The first Ctrl-C goes to the pool, which tells its workers to stop.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if not self._serve():
            sys.exit(STOPPED)

    def end(self) -> End:
        if self.exitcode == STOPPED:
            return End("stopped")
        if not self.exitcode or self.pid is None:
            return End("done")
        return End("killed", self._ledger.claimed_by(self.pid, platform.node()))
