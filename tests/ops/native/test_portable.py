"""The kernels with the vectors of other processors: eight lanes as AVX2 has, and four."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torchcaps.ops.native import build

# What `-march=native` would be there.
COMPILER = """#!{python}
import os, sys
told = [word.replace("-march=native", "-march={machine}") for word in sys.argv[1:]]
os.execv({real!r}, [{real!r}, *told])
"""
HERE = Path(__file__).parent
LAWS = "(native and plain_op) or test_any_number_of_threads or test_ragged or exact or same_bits"
# With four lanes of x86 there is no fused multiply-add, and five iterations of distance routing err
# seven times as much as the plain op instead of three.
FOUR = f"({LAWS}) and not (distance and all-matrix and iterations5)"


@pytest.mark.slow
@pytest.mark.skipif(
    platform.machine() != "x86_64" or "avx2" not in Path("/proc/cpuinfo").read_text(),
    reason="needs an x86 processor with AVX2 to run what is built for it, and for less",
)
@pytest.mark.parametrize(
    ("machine", "laws"), [("x86-64", FOUR), ("x86-64-v3", LAWS)], ids=["four lanes", "eight lanes"]
)
def test_the_laws_hold_with_shorter_vectors(machine, laws, tmp_path):
    real = next(filter(None, map(shutil.which, build.COMPILERS)), None)
    if real is None:
        pytest.skip("native kernels need a C++ compiler, c++, g++ or clang++")
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER.format(python=sys.executable, machine=machine, real=real))
    compiler.chmod(0o700)
    told = {"CXX": str(compiler), "TORCHCAPS_CACHE": str(tmp_path)}
    files = [*HERE.glob("test_[desiw]*.py"), HERE.parents[1] / "contracts/test_form_contract.py"]
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [*words, "-k", laws, *sorted(map(str, files))],
        env=os.environ | told,
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert len(list((tmp_path / "native").glob("*.so"))) == 1
