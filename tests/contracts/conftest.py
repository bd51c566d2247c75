"""Where the kernels of a backend run, for tests of one `way`."""

import pytest

from torchcaps.ops import native


@pytest.fixture(autouse=True)
def _backend(request):
    way = request.getfixturevalue("way") if "way" in request.fixturenames else None
    if way == "native" and not native.available():
        pytest.skip("there is no C++ compiler, or TORCHCAPS_NATIVE=0")
