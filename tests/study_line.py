"""`torchcaps study run` in a process of its own, or in this one alone, and what it leaves in its
folder."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from torchcaps.study import read_records
from torchcaps.study.ledger import Ledger
from torchcaps.study.settings import Settings
from torchcaps.study.workers import End, Hire, serve

LINE = "import sys; from torchcaps.cli import main; main()"
FOUR_SEEDS = (
    'model = "peer_sign_em"\ndata = "sign"\nepochs = 8\nbatch_size = 500\n'
    "validation_share = 0.0\n[vary]\nseed = [0, 1, 2, 3]\n"
)


class Lines:
    """Starts lines in a folder that holds a study of four sign networks of eight epochs."""

    def __init__(self, folder):
        self.folder = folder
        self.started = []
        (folder / "my.toml").write_text(FOUR_SEEDS)

    def start(self, *words, code=LINE):
        process = subprocess.Popen(
            [sys.executable, "-c", code, "study", "run", "my.toml", "--json", *words],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            # Two jobs of two threads each wait for each other where other tests run.
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self.started.append(process)
        return process

    def end(self):
        for process in self.started:
            kill_all(process)

    def assert_end_well(self, process):
        """Every cell is there, and each was trained to its end once."""
        out, _ = process.communicate(timeout=900)
        assert process.returncode == 0
        assert self.rows() == {name: list(range(1, 9)) for name in self.rows()}
        assert len(self.done()) == 4
        assert json.loads(out)["variants"][0]["seeds"] == [0, 1, 2, 3]
        (record,) = read_records(self.folder / "evidence", drafts=True).values()
        assert [seed.seed for seed in record.seeds] == [0, 1, 2, 3]
        assert record.command.startswith("-c study run my.toml")

    def rows(self):
        """The epochs of every run, by its name."""
        return {
            path.parent.name: [json.loads(row)["epoch"] for row in path.read_text().splitlines()]
            for path in self.folder.glob("runs/*/metrics.jsonl")
        }

    def done(self):
        """When each run that is done wrote its result."""
        results = self.folder.glob("runs/*/result.json")
        return {path.parent.name: path.stat().st_mtime_ns for path in results}

    def last_epochs(self):
        """How often each run told that it ended its last epoch."""
        logs = (path.read_text() for path in self.folder.glob("runs/worker*.log"))
        return Counter(
            line.split(":")[0]
            for log in logs
            for line in log.splitlines()
            if "epoch 8/8  loss" in line
        )


def what_it_says(folder):
    """The bits of every network of a study, and its record but for times."""
    (record,) = read_records(folder / "evidence", drafts=True).values()
    networks = folder.glob("runs/*/model.safetensors")
    bits = {path.parent.name: path.read_bytes() for path in networks}
    rows = [[{**row, "seconds": 0} for row in seed.per_epoch] for seed in record.seeds]
    return bits, rows, [seed.values for seed in record.seeds], record.commit


def kill_all(process):
    """A line with all processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def until(true, *, seconds=600):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@contextmanager
def in_this_process(settings: Settings, ledger: Ledger) -> Iterator[Hire]:
    """Another process takes seconds to start, and knows no data set of tests."""
    yield lambda cells, number: _Worker(serve(cells, settings, number))


class _Worker(NamedTuple):
    """It has come to its end when it is there: as it should, or told to stop."""

    came_to_its_end: bool

    def is_alive(self) -> bool:
        return False

    def end(self) -> End:
        return End("done" if self.came_to_its_end else "stopped")

    def terminate(self) -> None:
        pass

    join = terminate
