"""A process that imports once, and then forks another for each line that it is told."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# What a file of tests starts with stands in it: it defines `train`, which is given a line.
PROGRAM = """
import os, sys
import torch
from torchcaps.data import SOURCES, PartWholeSpec, part_whole

torch.set_num_threads(1)
SOURCES["tiny"] = lambda split, root: part_whole(
    split, {"train": 48, "test": 12}[split], spec=PartWholeSpec(size=20)
)
START
print("ready", flush=True)
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        code = 1
        try:
            train(line.strip())
            code = 0
        except SystemExit as end:
            code = end.code or 0
        finally:
            os._exit(code)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Nursery:
    def __init__(self, folder: Path, start: str, *words: str):
        script = folder / "nursery.py"
        script.write_text(PROGRAM.replace("START", start))
        self.process = subprocess.Popen(
            [sys.executable, str(script), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert self._read() == "ready"

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def run(self, line: str, kill_after: float | None = None) -> int:
        """How a process ended that was told this line, killed so long after it began if it was not
        done."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        pid = int(self._read())
        if kill_after is not None:
            time.sleep(kill_after)
            # It may be done.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return int(self._read())
