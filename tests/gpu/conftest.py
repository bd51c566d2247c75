"""Where these tests run: on a GPU, or in a rehearsal on what TORCHCAPS_TEST_DEVICE names."""

import os
import sys
from pathlib import Path

import pytest
import torch

# What benchmarks/gpu.py times is held to its own eager step here.
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture(scope="session")
def device():
    name = os.environ.get("TORCHCAPS_TEST_DEVICE", "cuda")
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no GPU; TORCHCAPS_TEST_DEVICE=cpu rehearses without one")
    return torch.device(name)


@pytest.fixture(autouse=True)
def _in_single_precision():
    """Not in TF32, which has ten bits of float32's 23."""
    of = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [each.allow_tf32 for each in of]
    for each in of:
        each.allow_tf32 = False
    yield
    for each, was in zip(of, before, strict=True):
        each.allow_tf32 = was
