"""The throughput benchmark runs, and its numbers are of the things it names."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "throughput.py"


@pytest.mark.slow
def test_a_tiny_run_writes_every_number(tmp_path):
    record = tmp_path / "record.json"
    words = [sys.executable, SCRIPT, "--tiny", "--out", record]
    subprocess.run(words, check=True, capture_output=True, timeout=300)
    written = json.loads(record.read_text())
    assert written["tiny"]
    rates = {row["name"]: row["images_per_second"] for row in written["training"]}
    assert set(rates) == {"capsnet", "mitterreiter_5x16", "efficient_capsnet"}
    for way in written["data_path"].values():
        expected = way["images_per_second"] / rates["capsnet"]
        assert way["times_capsnet"] == pytest.approx(expected, abs=0.1)
