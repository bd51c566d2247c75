"""Whether somebody told this process to stop training."""

import signal
import threading
from typing import Any, Self

from torchcaps._ctrl_c import interrupt

# Whose answer to Ctrl-C training takes over, and what then answers a second one.
SECOND: dict[Any, Any] = {
    signal.default_int_handler: signal.default_int_handler,
    interrupt: signal.SIG_DFL,
}


class Told:
    """Takes SIGTERM and the first Ctrl-C while it is entered, and remembers that they came.

    >>> with Told() as told:
    ...     told.to_stop
    False
    """

    def __init__(self) -> None:
        self.to_stop = False
        # Who answered signals before.
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            # Of a handler that is not Python's, nothing is known.
            before = signal.signal(signal.SIGTERM, self._on_sigterm)
            self.before[signal.SIGTERM] = signal.SIG_DFL if before is None else before
            # Where a program of one's own answers Ctrl-C, it goes on doing so.
            if signal.getsignal(signal.SIGINT) in SECOND:
                self.before[signal.SIGINT] = signal.signal(signal.SIGINT, self._on_sigint)
        return self

    def __exit__(self, *_: object) -> None:
        for which, before in self.before.items():
            signal.signal(which, before)
        self.before = {}

    def _on_sigterm(self, *_: Any) -> None:
        self.to_stop = True

    def _on_sigint(self, *_: Any) -> None:
        # None where it came twice within a moment.
        signal.signal(
            signal.SIGINT, SECOND.get(self.before.pop(signal.SIGINT, None), signal.SIG_DFL)
        )
        self.to_stop = True
