"""Where Triton lacks something, what it lacks is said. Needs no Triton."""

import json
import subprocess
import sys
from itertools import product
from unittest import mock

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.layers import DenseCapsules, use_backend
from torchcaps.ops import triton
from torchcaps.ops.fused.tiles import made_of, vote_like
from torchcaps.ops.triton import runtime
from torchcaps.ops.triton.votes import WEIGHTS, blocks_of, fits, shape_of
from torchcaps.types import Capsules, VoteMap

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


@pytest.mark.parametrize("sharing", ["none", "all"])
def test_no_vote_is_taken_whose_weights_are_more_than_a_block(sharing):
    taken = []
    for columns, inner in product((1, 3, 16, 500, 1024), repeat=2):
        lead = (1,) if sharing == "none" else ()
        weight = torch.ones(*lead, 2, columns, inner)
        vote_map = VoteMap(Capsules(torch.ones(1, 1, inner)), weight, sharing)
        blocks = blocks_of(shape_of(made_of(vote_map, vote_like(vote_map))))
        assert fits(vote_map) == (blocks.parents * blocks.columns * blocks.inner <= WEIGHTS)
        taken.append(fits(vote_map))
    assert any(taken)
    assert not all(taken)
