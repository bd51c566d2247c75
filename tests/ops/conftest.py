"""What the tests of kernels need."""

import pytest

from torchcaps.ops import native


@pytest.fixture
def kernels():
    if not native.available():
        pytest.skip("there is no C++ compiler, or TORCHCAPS_NATIVE=0")
