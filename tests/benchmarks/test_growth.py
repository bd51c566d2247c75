"""The growth benchmark runs, and fits exponents."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "growth.py"


def test_an_exponent_is_the_slope_of_logarithms():
    from growth import exponent

    assert exponent([1, 2, 4, 8], [5, 20, 80, 320]) == pytest.approx(2)
    assert exponent([16, 64], [7, 7]) == pytest.approx(0)


@pytest.mark.slow
def test_a_tiny_run_fits_every_exponent(tmp_path):
    record = tmp_path / "record.json"
    words = [sys.executable, SCRIPT, "--tiny", "--out", record, "--seconds", "0.01"]
    words += ["--axes", "batch", "i", "--routings", "em", "--contestants", "ours-fused"]
    subprocess.run(words, check=True, capture_output=True, timeout=300)
    written = json.loads(record.read_text())
    assert written["tiny"]
    rows = {(row["routing"], row["axis"]): row for row in written["growth"]}
    assert set(rows) == {("dynamic", "batch"), ("dynamic", "i"), ("em", "i")}
    assert [point["size"] for point in rows["dynamic", "batch"]["points"]] == [16, 32]
    assert [point["size"] for point in rows["em", "i"]["points"]] == [576, 1152]
    for row in rows.values():
        assert set(row["exponents"]) == {"ms", "peak_mb"}
