"""A built wheel carries everything that the commands need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Runs outside the repository, on the unpacked wheel alone.
CHECK = """
import pathlib, sys, torchcaps
from torchcaps.report import render
assert pathlib.Path(torchcaps.__file__).is_relative_to(sys.argv[1]), torchcaps.__file__
assert pathlib.Path(torchcaps.__file__).with_name("py.typed").is_file()
assert "Verdict" in render([], title="empty", provenance={})
from torchcaps.train.environment import environment
assert environment()["commit"] is None
from torchcaps.study import claim, claims
assert len(claims()) == 947
assert not claim.PLACES[1].exists()
print("complete")
"""


@pytest.mark.slow
def test_a_wheel_is_complete(tmp_path):
    built = tmp_path / "built"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(built)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    (wheel,) = built.glob("*.whl")
    installed = tmp_path / "installed"
    subprocess.run(
        [*pip, "install", "--no-deps", "--target", str(installed), str(wheel)],
        check=True,
        capture_output=True,
    )
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(installed)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "complete", done.stderr
