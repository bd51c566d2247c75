"""Sets of images of a file's own, under the names by which its recipes know them."""

import pytest

from torchcaps.data import SOURCES


@pytest.fixture(autouse=True, scope="module")
def _data(request):
    with pytest.MonkeyPatch.context() as patch:
        for name, source in getattr(request.module, "DATA", {}).items():
            patch.setitem(SOURCES, name, source)
        yield
