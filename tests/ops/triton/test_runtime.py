"""Where Triton lacks something, what it lacks is said. Needs no Triton."""

import json
import subprocess
import sys
from unittest import mock

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.layers import DenseCapsules, use_backend
from torchcaps.ops import triton
from torchcaps.ops.triton import runtime
from torchcaps.types import Capsules

LAYER = {"n_in": 4, "d_in": 4, "n_out": 3, "d_out": 4}
CHILDREN = Capsules(torch.ones(2, 4, 4))

LOADED = """
import json, sys
import torchcaps.layers, torchcaps.ops.triton
print(json.dumps([name for name in sys.modules if name.endswith("_kernels")]))
"""


@pytest.fixture(autouse=True)
def triton_device():
    """Nothing here asks for one."""


def raised(installed, interpreted):
    layer = DenseCapsules(**LAYER)
    use_backend(layer, "triton")
    with (
        mock.patch.object(runtime, "_is_installed", return_value=installed),
        mock.patch.object(runtime, "interpreted", return_value=interpreted),
        pytest.raises(TorchcapsError) as error,
    ):
        layer(CHILDREN)
    return str(error.value)


def test_without_triton_the_command_is_named():
    assert raised(installed=False, interpreted=True) == (
        'backend="triton" needs Triton, which is not installed: '
        'pip install "torchcaps[triton]"; or use backend="auto".'
    )


def test_on_a_processor_it_says_what_it_runs_on():
    assert raised(installed=True, interpreted=False) == (
        "backend=\"triton\" routes on a GPU, but the children lie on 'cpu'; move model and data "
        'with .to("cuda"), or use backend="auto".'
    )


@pytest.mark.parametrize(
    ("installed", "interpreted", "gpu", "expected"),
    [
        (False, True, True, False),
        (True, False, False, False),
        (True, True, False, True),
        (True, False, True, True),
    ],
)
def test_available(installed, interpreted, gpu, expected):
    with (
        mock.patch.object(runtime, "_is_installed", return_value=installed),
        mock.patch.object(runtime, "interpreted", return_value=interpreted),
        mock.patch.object(torch.cuda, "is_available", return_value=gpu),
    ):
        assert triton.available() is expected


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("ON", True), ("0", False), ("", False)]
)
def test_the_interpreter_is_asked_for_as_triton_has_it(value, expected, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", value)
    assert runtime.interpreted() is expected


@pytest.mark.slow
def test_nothing_here_imports_triton_before_a_kernel_runs():
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
