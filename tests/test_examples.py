"""Every example runs as it stands, in a process of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_its_loss_falls(path, tmp_path):
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not any(tmp_path.iterdir())
    losses = [float(number) for number in re.findall(r"loss (\d\.\d+)", done.stdout)]
    assert len(losses) == 5
    assert losses[-1] < losses[0]
