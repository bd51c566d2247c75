"""`torchcaps study run` in a process of its own, and what it leaves in its folder."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

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
