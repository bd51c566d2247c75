"""What happens to files: bytes flip, ends get lost. A reader must give a set or one sentence."""

import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from torchcaps.data import ImageSet
from torchcaps.errors import TorchcapsError

TIMES = 200
MEGABYTE = 1 << 20


@contextmanager
def at_most(most: int) -> Iterator[None]:
    """Refuse that the block holds more bytes than these at any moment."""
    tracemalloc.start()
    try:
        yield
        held = tracemalloc.get_traced_memory()[1]
        largest = tracemalloc.take_snapshot().statistics("lineno")[:3]
        assert held < most, f"{held:,} bytes at once, {most:,} allowed; still held: {largest}"
    finally:
        tracemalloc.stop()


def damaged(content: bytes, *, seed: int = 0, times: int = TIMES):
    """Copies with one byte changed, mostly near the start where the header is, or cut short."""
    draw = random.Random(seed)
    for turn in range(times):
        reach = len(content) if turn % 2 else min(len(content), 400)
        at = draw.randrange(reach)
        if turn % 4 == 3:
            yield content[:at]
        else:
            changed = content[at] ^ (1 << draw.randrange(8)) if turn % 3 else draw.randrange(256)
            yield content[:at] + bytes([changed]) + content[at + 1 :]


def assert_survives(
    path: Path, read: Callable[[], ImageSet], *, most: int = 8 * MEGABYTE, times: int = TIMES
) -> None:
    """Damage the file at `path` again and again: a set or one sentence, and little memory."""
    content = path.read_bytes()
    assert isinstance(read(), ImageSet)
    sentences: list[str] = []

    def read_or_tell() -> None:
        try:
            assert isinstance(read(), ImageSet)
        except TorchcapsError as error:
            sentences.append(str(error))

    for each in damaged(content, times=times):
        path.write_bytes(each)
        # A reader does the same again; what another thread or a first import took does not come
        # a second time.
        if _held_by(read_or_tell) >= most:
            with at_most(most):
                read_or_tell()
    path.write_bytes(content)
    # A reader that believes everything is no reader.
    assert len(sentences) > times // 10
    assert [text for text in sentences if "\n" in text or not text.endswith((".", "?"))] == []


def _held_by(action: Callable[[], None]) -> int:
    """The most bytes held at once while it ran."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
