"""What a test registers is gone after it."""

from collections.abc import Iterator
from contextlib import contextmanager

from torchcaps.layers import ROUTINGS
from torchcaps.models import MODELS


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
