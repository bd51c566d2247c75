"""The benchmark of threads and parents runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cores.py"


@pytest.mark.slow
def test_a_tiny_run_compares_threads_and_parents(tmp_path):
    record = tmp_path / "record.json"
    words = [sys.executable, SCRIPT, "--tiny", "--rounds", "1", "--seconds", "0.01"]
    words += ["--cases", "dynamic-detach", "--parents", "10", "20", "--out", record]
    subprocess.run(words, check=True, capture_output=True, timeout=300)
    written = json.loads(record.read_text())
    assert written["tiny"]
    [row] = written["threads"]
    assert row["times"] == pytest.approx(row["one_ms"] / row["two_ms"])
    names = [
        f"dynamic-{kind}-{number}-parents" for kind in ("detach", "full") for number in (10, 20)
    ]
    assert [row["case"] for row in written["parents"]] == names
    assert all(0 < row["percent_of_peak"] < 100 for row in written["parents"])
