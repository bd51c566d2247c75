"""The compiler that builds the kernels, and another in its place."""

import os
import shutil

import pytest

from torchcaps.ops.native import build


@pytest.fixture
def real():
    found = next(filter(None, map(shutil.which, build.COMPILERS)), None)
    if os.name != "posix" or found is None:
        pytest.skip("native kernels need a C++ compiler, c++, g++ or clang++")
    return found


@pytest.fixture
def use_compiler(tmp_path, monkeypatch):
    """Writes a program, and names it as the compiler."""

    def use(text):
        path = tmp_path / "compiler"
        path.write_text(text)
        path.chmod(0o700)
        monkeypatch.setenv("CXX", str(path))
        return path

    return use
