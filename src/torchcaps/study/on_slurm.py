"""Workers that are jobs of Slurm, submitted through submitit.

A job takes cells until none is left or its time is nearly over; then the pool submits another one.
All machines must see the folder of the cells. Killed, the pool leaves its jobs at work.
"""

import json
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchcaps._json import read_json
from torchcaps._words import DIGITS
from torchcaps.errors import TorchcapsError, short
from torchcaps.study.disk import signed, unseen
from torchcaps.study.ledger import Ledger
from torchcaps.study.settings import Settings
from torchcaps.study.system import Cell
from torchcaps.study.workers import End, Hire, serve

# submitit's word for where jobs run; tests write "local".
CLUSTER = "slurm"
# Words that submitit knows for every cluster; it wants others to begin with "slurm_".
COMMON = ("cpus_per_task", "gpus_per_node", "mem_gb", "name", "timeout_min")
MINUTES = 60
# Before a job's time is over it ends the step that it is at, and saves its state.
SECONDS_TO_SAVE = 180


@contextmanager
def on_slurm(settings: Settings, ledger: Ledger) -> Iterator[Hire]:
    """Hire jobs with the options that `settings.on` has after "slurm:"."""
    given = _read(settings.place_options)
    options = {"timeout_min": MINUTES, "name": "torchcaps", **given}
    if settings.device == "cuda":
        options.setdefault("gpus_per_node", 1)
    executor = _executor(ledger.folder / "slurm")
    _tell(executor, options, given)
    seconds = 60 * options["timeout_min"]
    with signed(ledger.folder) as sign:

        def hire(cells: Sequence[Cell], number: int) -> _Job:
            there = settings.for_elsewhere()
            given = (cells, there, number, sign, sys.argv, seconds)
            return _Job(_submit(executor, *given), ledger)

        yield hire


def _read(text: str) -> dict[str, Any]:
    """Read the options of a job: NAME=VALUE, parted by commas."""
    options: dict[str, Any] = {}
    for word in filter(None, text.split(",")):
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier() or not value:
            raise TorchcapsError(
                f"--on slurm:NAME=VALUE,… takes options of a job, for example "
                f"slurm:partition=gpu,timeout_min=60, but {word!r} is none."
            )
        is_number = value.isdecimal() and len(value) <= DIGITS
        options[name] = int(value) if is_number else value
    minutes = options.get("timeout_min", MINUTES)
    if not isinstance(minutes, int) or minutes < 1:
        raise TorchcapsError(
            f"timeout_min must be whole minutes, 1 or more, but came as {short(minutes)}."
        )
    return options


def _executor(folder: Path) -> Any:
    try:
        import submitit
    except ModuleNotFoundError:
        raise TorchcapsError(
            "--on slurm needs submitit, which comes with the extra [slurm]: "
            "pip install 'torchcaps[slurm]'."
        ) from None
    try:
        return submitit.AutoExecutor(folder=folder, cluster=CLUSTER)
    except RuntimeError:
        raise TorchcapsError(
            "--on slurm must be called where jobs are submitted, and there is no `srun` here; log "
            "in to the cluster's login node."
        ) from None


def _tell(executor: Any, options: dict[str, Any], given: dict[str, Any]) -> None:
    """Tell the options in submitit's spelling; it knows which there are."""
    named = {n if n in COMMON else f"slurm_{n}": value for n, value in options.items()}
    try:
        executor.update_parameters(**named)
    except (NameError, TypeError, ValueError):
        raise TorchcapsError(
            f"these are not all options of a job: {', '.join(given)}; they are those of sbatch "
            f"with _ for -, and timeout_min, mem_gb, cpus_per_task, gpus_per_node: "
            f"slurm:partition=gpu,timeout_min=60."
        ) from None


def _submit(executor: Any, *given: Any) -> Any:
    import submitit

    try:
        return executor.submit(_run, *given)
    except submitit.core.utils.FailedJobError as error:
        said = str(error).strip().splitlines()
        raise TorchcapsError(
            f"Slurm took no job ({said[-1] if said else 'it said nothing'}); are the options after "
            f"slurm: right, and does the queue take so many --jobs?"
        ) from None


class _Job:
    """A worker that is a job."""

    def __init__(self, job: Any, ledger: Ledger):
        self._job, self._ledger = job, ledger

    def is_alive(self) -> bool:
        return not self._job.done()

    def end(self) -> End:
        import submitit

        try:
            why_not = self._job.result()
        except submitit.core.utils.FailedJobError as error:
            last = str(error).strip().splitlines()[-1]
            raise TorchcapsError(
                f"a worker failed in the Slurm job {self._job.job_id} ({last}); its output is in "
                f"{self._job.paths.stderr}."
            ) from None
        except submitit.core.utils.UncompletedJobError:
            return End("killed", self._cell())
        if why_not:
            raise TorchcapsError(why_not)
        # The pool knows by itself when its time is up; that of a job may end before.
        return End("done")

    def terminate(self) -> None:
        self._job.cancel(check=False)

    def join(self) -> None:
        self._job.wait()

    def _cell(self) -> str | None:
        try:
            process, machine = read_json(_who(self._ledger.folder, self._job.job_id))
        except (FileNotFoundError, TypeError, ValueError):
            return None
        return self._ledger.claimed_by(process, machine)


def _who(folder: Path, job: str) -> Path:
    """Name the file in which a job says which process it is."""
    return folder / "slurm" / f"{job}.process"


def _run(
    cells: Sequence[Cell],
    settings: Settings,
    number: int,
    sign: str,
    command: Sequence[str],
    seconds: float,
) -> str:
    """Do what a job does, and return the sentence that says why it cannot, or nothing."""
    import submitit

    begun = time.time()
    if said := unseen(settings.folder, sign, "the Slurm job"):
        return f"{said} Was the line killed that submitted it? Then the same line goes on."
    who = _who(settings.folder, submitit.JobEnvironment().job_id)
    who.write_text(json.dumps([os.getpid(), platform.node()]))
    # Runs write down which command began them.
    sys.argv = list(command)
    # Slurm's word that it wants the machine back: training saves its state and stops.
    signal.signal(signal.SIGUSR2, lambda *_: signal.raise_signal(signal.SIGTERM))
    if settings.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    nearly_over = begun + seconds - min(SECONDS_TO_SAVE, seconds / 2)
    until = nearly_over if settings.until is None else min(settings.until, nearly_over)
    serve(cells, replace(settings, until=until), number)
    return ""
