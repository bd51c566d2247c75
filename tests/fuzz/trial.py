"""What an attempt may do: end in time, and say one sentence."""

import contextlib
import io
import os
import signal
from collections.abc import Iterator
from pathlib import Path

SECONDS, LETTERS = 20, 2000


class Wrong(AssertionError):
    """Neither a sentence nor what was there before."""


class _Late(BaseException):
    """No Exception, of which a command makes a sentence."""


def check_sentence(text: str) -> None:
    if "\n" in text or len(text) > LETTERS or not text.strip():
        raise Wrong(f"no sentence: {text[:300]!r}")


@contextlib.contextmanager
def quiet(out: io.StringIO | None = None, err: io.StringIO | None = None) -> Iterator[None]:
    here = Path.cwd()
    with (
        contextlib.redirect_stdout(out or io.StringIO()),
        contextlib.redirect_stderr(err or io.StringIO()),
    ):
        try:
            yield
        finally:
            os.chdir(here)


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """What takes longer hangs."""

    def late(number: int, frame: object) -> None:
        raise _Late

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    except _Late:
        raise Wrong(f"longer than {SECONDS} s") from None
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
