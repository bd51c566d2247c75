"""The kernels under the compiler's sanitizers: no byte out of place, nothing undefined, no race."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchcaps.ops.native import build

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[2]
# What a library is built by: the runtime that Python runs in is not for the compiler itself.
COMPILER = """#!/bin/sh
unset LD_PRELOAD
exec {real} "$@" -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all
"""
# Every cell of the table that has kernels, every case that forms are held to, and Winograd's maps.
EXERCISE = """
import torch
from contracts.forms import leaves_of, results_of
from contracts.test_form_contract import every_case, every_shape
from ops import table
from ops.convolution import test_winograd as maps
from torchcaps.ops.native import build
assert build.library() is not None
torch.get_num_threads = lambda: 3
for name, way, place in table.CELLS:
    for layout in table.layouts_of(place) if way == "native" else ():
        table.results(name, way, place, layout, torch.float32)
for way, _, case in [*every_case(), *every_shape()]:
    if way == "native":
        results_of(way, case, leaves_of(case, torch.float32))
for shape in maps.SHAPES:
    for layout in maps.LAYOUTS:
        maps.ours(*maps.tensors(shape, layout), shape[-1]).sum().backward()
print("all of it")
"""
# A kernel has a workspace of one number.
FAULT = """
import torch
from contracts.forms import Case, leaves_of, results_of
from torchcaps.ops.native import build
assert build.library() is not None
class Half:
    float32, empty = torch.float32, lambda size, dtype: torch.empty(1, dtype=dtype)
build.torch = Half
results_of("native", Case("dynamic"), leaves_of(Case("dynamic"), torch.float32))
"""


def runtime(real, kind):
    """The library of a compiler that a sanitizer needs."""
    command = [real, f"-print-file-name=lib{kind}.so"]
    found = Path(subprocess.run(command, capture_output=True, text=True).stdout.strip())
    if not found.is_absolute():
        pytest.skip(f"{real} has no lib{kind}.so, the library of its sanitizer")
    return found


def test_no_kernel_leaves_its_memory_or_what_the_language_defines(tmp_path, real, use_compiler):
    variables = {"TORCHCAPS_CACHE": str(tmp_path), "LD_PRELOAD": str(runtime(real, "asan"))}
    use_compiler(COMPILER.format(real=real))
    # Python itself frees little at its end.
    variables |= {"ASAN_OPTIONS": "detect_leaks=0", "TORCHCAPS_NATIVE": "1"}
    variables["PYTHONPATH"] = os.pathsep.join(sys.path)

    about = {"env": os.environ | variables, "cwd": TESTS, "capture_output": True, "text": True}
    done, told = (
        subprocess.run([sys.executable, "-c", each], **about) for each in (EXERCISE, FAULT)
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == "all of it\n"
    assert "AddressSanitizer: heap-buffer-overflow" in told.stderr


def test_kernels_called_at_once_do_not_race(tmp_path, real):
    runtime(real, "tsan")
    program, source = tmp_path / "at_once", Path(__file__).with_name("at_once.cpp")
    flags = [flag for flag in build.FLAGS if flag not in ("-O2", "-shared", "-fPIC")]
    flags += ["-O1", "-g1", "-fsanitize=thread", f"-I{build.FOLDER}"]
    subprocess.run([real, *flags, str(source), "-o", str(program)], check=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "alike\n", "")
    together = subprocess.run([program, "together"], capture_output=True, text=True)
    assert "ThreadSanitizer: data race" in together.stderr
