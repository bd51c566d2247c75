"""Ten minutes of files for readers, each led on by the code that it reaches."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_ten_minutes_led_by_what_they_reach_find_nothing(capsys):
    pytest.importorskip("atheris")
    ended = subprocess.run(
        [sys.executable, "-m", "fuzz.guided", "--minutes", "10"],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    with capsys.disabled():
        print(ended.stdout)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
