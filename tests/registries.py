"""What a test registers is gone after it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from torchcaps.layers import ROUTINGS
from torchcaps.models import MODELS
from torchcaps.train import own_code


def forget_imported() -> None:
    """What was imported by --import is as new as in another process."""
    for name in own_code._IMPORTED:
        sys.modules.pop(name, None)
    own_code._IMPORTED.clear()
    own_code.CLASSES.clear()


@contextmanager
def as_before() -> Iterator[None]:
    """The tables of routings and of networks are left as they were found."""
    kept = dict(ROUTINGS), dict(MODELS)
    try:
        yield
    finally:
        for table, before in zip((ROUTINGS, MODELS), kept, strict=True):
            table.clear()
            table.update(before)  # type: ignore[arg-type]
