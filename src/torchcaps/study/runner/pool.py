"""A pool of worker processes on this machine, and what is watched of them.

Workers share nothing but the ledger. The pool starts as many as there are jobs, starts another one
where one was killed, writes a record as soon as a system is complete, and ends when no cell is left
that could be taken. Killed itself, it leaves a ledger that the same call goes on with.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from torchcaps.errors import Interrupted, TorchcapsError
from torchcaps.study.runner.evidence import write_records
from torchcaps.study.runner.ledger import Ledger, State
from torchcaps.study.runner.system import Cell, Study
from torchcaps.study.runner.work import OPEN, work

__all__ = ["Settings", "run_study"]

# A cell whose worker was killed so often is left alone.
MOST_DEATHS = 3
SECONDS_BETWEEN_LOOKS = 0.5
# What a worker ends with that saved its state and stopped.
STOPPED = 130


@dataclass(frozen=True)
class Settings:
    """How a study is run on this machine.

    `root` is the folder of data sets that are files, `jobs` how many cells run at once, `device`
    "auto", "cpu" or "cuda", and `until` the time (`time.time()`) at which all states are saved.
    """

    folder: Path
    evidence: Path
    root: Path | None = None
    jobs: int = 1
    device: str = "auto"
    until: float | None = None


def run_study(
    study: Study,
    settings: Settings,
    *,
    watch: Callable[[dict[str, State]], None] = lambda states: None,
) -> list[Path]:
    """Run what is left of a study, and return the paths of its records.

    `watch` is called with the state of every cell, again and again.
    """
    _check(settings)
    ledger = Ledger(settings.folder)
    cells = study.cells()
    for cell in cells:
        ledger.forgive(cell)
    pool = _Pool(cells, ledger, settings)
    complete = -1
    if threading.current_thread() is threading.main_thread():
        # As Ctrl-C: the workers save their states.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while True:
            states = {cell.name: ledger.state(cell) for cell in cells}
            watch(states)
            ended = sum(state in ("done", "failed") for state in states.values())
            if ended != complete:
                write_records(study, ledger, settings.evidence)
                complete = ended
            if not pool.tend(states):
                break
            time.sleep(SECONDS_BETWEEN_LOOKS)
    except KeyboardInterrupt:
        pool.stop()
        raise Interrupted("the study was interrupted; the same command goes on.") from None
    except BaseException:
        pool.stop()
        raise
    paths = write_records(study, ledger, settings.evidence)
    pool.explain({cell.name: ledger.state(cell) for cell in cells})
    return paths


def _check(settings: Settings) -> None:
    if settings.jobs < 1:
        raise TorchcapsError(f"--jobs must be 1 or more processes, but is {settings.jobs}.")
    if settings.device not in ("auto", "cpu", "cuda"):
        raise TorchcapsError(
            f"--device must be auto, cpu or cuda, but is {settings.device!r}; of several GPUs the "
            f"environment variable CUDA_VISIBLE_DEVICES chooses."
        )
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise TorchcapsError(
            "--device cuda needs a GPU that torch sees, and there is none; leave it out, and the "
            "processor is taken."
        )


class _Pool:
    """The workers that run, and how often cells were left by one that was killed."""

    def __init__(self, cells: Sequence[Cell], ledger: Ledger, settings: Settings):
        self.cells, self.ledger, self.settings = cells, ledger, settings
        self.workers: list[BaseProcess] = []
        self.deaths: Counter[str] = Counter()
        self.was_stopped = False
        self.started = 0

    def tend(self, states: dict[str, State]) -> bool:
        """Look after the workers; whether any is left."""
        for worker in [each for each in self.workers if not each.is_alive()]:
            self.workers.remove(worker)
            self._bury(worker)
        takeable = [cell for cell in self._cells() if states[cell.name] in OPEN]
        if takeable and not self._is_over():
            for _ in range(min(self.settings.jobs, len(takeable)) - len(self.workers)):
                self._start()
        return bool(self.workers)

    def stop(self) -> None:
        """Ask every worker to save its state, and wait for that."""
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.join()

    def explain(self, states: dict[str, State]) -> None:
        """Raise the sentence that says why cells are left, where some are."""
        given_up = [name for name, count in self.deaths.items() if count >= MOST_DEATHS]
        if given_up:
            raise TorchcapsError(
                f"the process that ran {given_up[0]} was killed {MOST_DEATHS} times, so it was "
                f"left alone; did memory run out? Take fewer --jobs."
            )
        left = [name for name, state in states.items() if state in (*OPEN, "running")]
        if left and self._is_over():
            raise Interrupted(
                f"stopped with {len(left)} of {len(states)} cells left; the same command goes on."
            )
        stopped = [cell for cell in self.cells if states[cell.name] == "stopped"]
        if stopped:
            raise TorchcapsError(
                f"{len(stopped)} of {len(states)} cells were stopped by an error, the first, "
                f"{stopped[0].name}, by this: {self.ledger.failure(stopped[0])} The same command "
                f"tries them again."
            )

    def _cells(self) -> list[Cell]:
        return [cell for cell in self.cells if self.deaths[cell.name] < MOST_DEATHS]

    def _is_over(self) -> bool:
        until = self.settings.until
        return self.was_stopped or (until is not None and time.time() >= until)

    def _start(self) -> None:
        settings = self.settings
        worker = multiprocessing.get_context("spawn").Process(
            target=_worker, args=(self._cells(), settings, os.getpid(), self.started)
        )
        worker.start()
        self.started += 1
        self.workers.append(worker)

    def _bury(self, worker: BaseProcess) -> None:
        if worker.exitcode == STOPPED:
            self.was_stopped = True
        elif worker.exitcode and worker.pid is not None:
            cell = self.ledger.claimed_by(worker.pid)
            # One that died before it took a cell died of something that all workers share.
            self.deaths[cell or self.cells[0].name] += 1


def _worker(cells: Sequence[Cell], settings: Settings, parent: int, number: int) -> None:
    """What a worker process does: it speaks into a file of its own, and uses its share of cores."""
    if settings.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    elif torch.cuda.device_count() > 1:
        torch.cuda.set_device(number % torch.cuda.device_count())
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // settings.jobs))
    # The first Ctrl-C goes to the pool, which tells its workers to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ledger = Ledger(settings.folder)
    ledger.folder.mkdir(parents=True, exist_ok=True)
    talk = (ledger.folder / f"worker{number}.log").open("a", encoding="utf-8", buffering=1)
    sys.stderr = talk
    try:
        work(cells, ledger, root=settings.root, until=settings.until, parent=parent)
    except Interrupted as stop:
        print(stop, file=talk)
        sys.exit(STOPPED)
