"""Where the kernels of a backend run, for tests of one `way`."""

import pytest

from ops.triton.interpreter import triton_device

__all__ = ["triton_device"]


@pytest.fixture(autouse=True)
def _backend(request):
    way = request.getfixturevalue("way") if "way" in request.fixturenames else None
    if way == "triton":
        request.getfixturevalue("triton_device")
    if way == "native":
        # Not above: whatever imports Triton must wait until tests/conftest.py has told it how.
        from torchcaps.ops import native

        if not native.available():
            pytest.skip("there is no C++ compiler, or TORCHCAPS_NATIVE=0")
