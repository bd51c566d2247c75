"""Every test here runs the kernels, on the device that `triton_device` says."""

import pytest

from ops.triton.interpreter import launches, triton_device

__all__ = ["launches", "triton_device"]


@pytest.fixture(autouse=True)
def _on_a_device(triton_device):
    pass
