"""The benchmark of measuring: a tiny run has every measurement, and memory is counted."""

import measuring
import pytest

from torchcaps.analysis.by_name import TRACE_MEASUREMENTS


@pytest.mark.slow
def test_a_tiny_run_has_every_number():
    found = measuring.measured(200, 2)
    kinds = [*TRACE_MEASUREMENTS, "fidelity", "fixed-point", "selectivity", "separation"]
    assert {*found["bytes"]} == {*kinds}
    assert all([*each] == [100, 200] for each in found["bytes"].values())
    # Of a mean alone nothing grows; a sample does until it is full.
    assert abs(found["bytes"]["activity"][100] - found["bytes"]["activity"][200]) < 100
    assert found["bytes"]["antipodal"][100] < found["bytes"]["antipodal"][200]
    assert found["ratio"] > 0
    assert {*kinds} < {*found["cpu_seconds"]}
