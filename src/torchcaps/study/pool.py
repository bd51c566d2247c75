"""A pool of workers, and what is watched of them.

Workers share nothing but the ledger. The pool starts as many as there are jobs, and another one
where one was killed. Killed itself, it leaves a ledger that the same call goes on with.
"""

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from torchcaps.errors import Interrupted, TorchcapsError
from torchcaps.study.evidence import write_records
from torchcaps.study.ledger import Ledger, State
from torchcaps.study.record import read_records
from torchcaps.study.settings import Settings, check
from torchcaps.study.system import Cell, Study
from torchcaps.study.work import OPEN
from torchcaps.study.workers import Hire, Worker, here

# A cell whose worker was killed so often is left alone.
MOST_DEATHS = 3
ENDED = ("done", "failed")
SECONDS_BETWEEN_LOOKS = 0.5


def run_study(
    study: Study,
    settings: Settings,
    *,
    watch: Callable[[dict[str, State]], None] = lambda states: None,
) -> list[Path]:
    """Run what is left of a study, and return the paths of its records.
    `watch` is called with the state of every cell, again and again."""
    check(settings)
    # Records that cannot be read are found now, and not after training.
    read_records(settings.evidence, study=study.name, drafts=True)
    ledger, cells = Ledger(settings.folder), study.cells()
    for cell in cells:
        ledger.forgive(cell)
    with _place(settings, ledger) as hire:
        pool = _Pool(cells, ledger, settings, hire)
        if threading.current_thread() is threading.main_thread():
            # As Ctrl-C: the workers save their states.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            _tend_to_the_end(pool, study, watch)
        except KeyboardInterrupt:
            pool.stop()
            raise Interrupted("the study was interrupted; the same command goes on.") from None
        except BaseException:
            pool.stop()
            raise
    paths = write_records(study, ledger, settings.evidence)
    pool.explain(pool.states())
    return paths


def _tend_to_the_end(
    pool: "_Pool", study: Study, watch: Callable[[dict[str, State]], None]
) -> None:
    """Look after the workers until none is left, and write records as systems become complete."""
    complete, is_tended = -1, True
    while is_tended:
        states = pool.states()
        watch(states)
        ended = sum(state in ENDED for state in states.values())
        if ended != complete:
            # What makes no record is told at the end: the other cells need not wait for it.
            with suppress(TorchcapsError):
                write_records(study, pool.ledger, pool.settings.evidence)
            complete = ended
        is_tended = pool.tend(states)
        if is_tended:
            time.sleep(SECONDS_BETWEEN_LOOKS)


def _place(settings: Settings, ledger: Ledger) -> AbstractContextManager[Hire]:
    if settings.place == "ray":
        from torchcaps.study.on_ray import on_ray

        return on_ray(settings, ledger)
    if settings.place == "slurm":
        from torchcaps.study.on_slurm import on_slurm

        return on_slurm(settings, ledger)
    return here(settings, ledger)


class _Pool:
    """The workers that run, and how often cells were left by one that was killed."""

    def __init__(self, cells: Sequence[Cell], ledger: Ledger, settings: Settings, hire: Hire):
        self.cells, self.ledger, self.settings, self.hire = cells, ledger, settings, hire
        self.workers: list[Worker] = []
        self.deaths: Counter[str] = Counter()
        # Cells of workers that died. Another machine frees their locks in its own time.
        self.left: set[str] = set()
        self.was_stopped = False
        # What ended stays so, and to ask again opens two files a cell.
        self.ended: dict[str, State] = {}
        # Workers that died before they took a cell, one after another.
        self.early = 0
        self.started = 0
        # A queue may take fewer jobs than were asked for.
        self.most = settings.jobs

    def states(self) -> dict[str, State]:
        known, ask = self.ended, self.ledger.state
        states = {cell.name: known.get(cell.name) or ask(cell) for cell in self.cells}
        self.ended = {name: state for name, state in states.items() if state in ENDED}
        return states

    def tend(self, states: dict[str, State]) -> bool:
        """Look after the workers; whether any is left, or is still to be started."""
        for worker in [each for each in self.workers if not each.is_alive()]:
            self.workers.remove(worker)
            self._bury(worker)
        if self._is_over() or self.early >= MOST_DEATHS:
            return bool(self.workers)
        takeable = [cell for cell in self._cells() if states[cell.name] in OPEN]
        if takeable:
            running = sum(state == "running" for state in states.values())
            # One worker takes several cells.
            cells = running + len(takeable)
            workers = min(self.settings.jobs, -(-cells // self.settings.together))
            self._hire(min(workers, self.most) - len(self.workers))
        return bool(self.workers) or any(states[name] == "running" for name in self.left)

    def stop(self) -> None:
        """Ask every worker to save its state, and wait for that."""
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.join()

    def explain(self, states: dict[str, State]) -> None:
        """Raise the sentence that says why cells are left, where some are."""
        if self.early >= MOST_DEATHS:
            raise TorchcapsError(
                f"{MOST_DEATHS} processes ended one after another before they took a cell, so no "
                f"more were started; what they said is above: is the disk full, did memory run "
                f"out? The same command goes on."
            )
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
        elsewhere = sum(state == "running" for state in states.values())
        if elsewhere:
            raise Interrupted(
                f"{elsewhere} of {len(states)} cells are left, which another command is at; when "
                f"it has ended, the same line prints them all."
            )
        waiting = sum(state in OPEN for state in states.values())
        if waiting:
            raise Interrupted(
                f"{waiting} of {len(states)} cells are left, which another process seemed to be "
                f"at; the same command goes on."
            )

    def _hire(self, workers: int) -> None:
        for _ in range(workers):
            try:
                self.workers.append(self.hire(self._cells(), self.started))
            except TorchcapsError:
                if not self.workers:
                    raise
                # Those that are there go on.
                self.most = len(self.workers)
                return
            self.started += 1

    def _cells(self) -> list[Cell]:
        return [cell for cell in self.cells if self.deaths[cell.name] < MOST_DEATHS]

    def _is_over(self) -> bool:
        until = self.settings.until
        return self.was_stopped or (until is not None and time.time() >= until)

    def _bury(self, worker: Worker) -> None:
        how, cell = worker.end()
        if how == "stopped":
            self.was_stopped = True
        if how in ("killed", "lost") and cell is not None:
            self.left.add(cell)
        # One that died before it took a cell died of something that all workers share.
        self.early = self.early + 1 if how == "killed" and cell is None else 0
        if how == "killed" and cell is not None:
            self.deaths[cell] += 1
