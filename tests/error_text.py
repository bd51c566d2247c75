"""The sentence of an error, as a user reads it."""

from collections.abc import Callable

import pytest

from torchcaps.errors import TorchcapsError


def text_of(call: Callable[[], object]) -> str:
    """The one line that `call` ends in."""
    with pytest.raises(TorchcapsError) as error:
        call()
    text = str(error.value)
    assert "\n" not in text
    return text
