"""The network of most tests, and the small set that a file of tests calls `tiny`."""

import pytest

from laid_runs import small_network
from torchcaps.data import SOURCES


@pytest.fixture(autouse=True, scope="module")
def _tiny(request):
    with pytest.MonkeyPatch.context() as patch:
        if hasattr(request.module, "tiny"):
            patch.setitem(SOURCES, "tiny", request.module.tiny)
        yield


@pytest.fixture(scope="session")
def network():
    return small_network()
