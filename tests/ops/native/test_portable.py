"""The kernels with the vectors of other processors: eight lanes as AVX2 has, and four."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from contracts.test_form_contract import every_case

# What `-march=native` would be there.
COMPILER = """#!{python}
import os, sys
words = [word.replace("-march=native", "-march={machine}") for word in sys.argv[1:]]
os.execv({real!r}, [{real!r}, *words])
"""
TESTS = Path(__file__).parents[2]
LAWS = [
    "contracts/test_form_contract.py::test_values_and_all_gradients_are_those_of_the_plain_op",
    "contracts/test_form_contract.py::test_batches_and_capsules_of_every_number",
    "contracts/test_form_contract.py::test_keep_changes_no_bit",
    *(
        f"contracts/test_form_errors.py::{name}"
        for name in ("test_any_number_of_threads", "test_ragged_sizes")
    ),
]
NATIVE = "not fused"
# With four lanes of x86 there is no fused multiply-add, and five iterations of distance routing err
# seven times as much as the plain op instead of three.
TOO_FAR = ("distance", "all-matrix", "iterations5")
FOUR = f"{NATIVE} and not ({' and '.join(TOO_FAR)})"


def test_what_is_selected_below_is_there():
    for law in LAWS:
        file, name = law.split("::")
        assert f"def {name}(" in (TESTS / file).read_text(), law
    cases = [str(case) for way, _, case in every_case() if way == "native"]
    left_out = [case for case in cases if all(word in case for word in TOO_FAR)]
    assert 0 < len(left_out) < len(cases) / 20


@pytest.mark.slow
@pytest.mark.skipif(
    platform.machine() != "x86_64" or "avx2" not in Path("/proc/cpuinfo").read_text(),
    reason="needs an x86 processor with AVX2 to run what is built for it, and for less",
)
@pytest.mark.parametrize(
    ("machine", "words"),
    [("x86-64", FOUR), ("x86-64-v3", NATIVE)],
    ids=["four lanes", "eight lanes"],
)
def test_the_laws_hold_with_shorter_vectors(machine, words, tmp_path, real, use_compiler):
    use_compiler(COMPILER.format(python=sys.executable, machine=machine, real=real))
    plugins = ["-p", "no:cacheprovider", "-p", "no:xdist"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", *plugins]
    done = subprocess.run(
        [*command, "-k", words, *LAWS],
        **{"env": os.environ | {"TORCHCAPS_CACHE": str(tmp_path)}, "cwd": TESTS},
        **{"capture_output": True, "text": True},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) >= 100
    assert len(list((tmp_path / "native").glob("*.so"))) == 1
