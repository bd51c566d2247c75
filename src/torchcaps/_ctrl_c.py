"""How the command line answers Ctrl-C; training takes over from it, to save the step first."""

import signal
from types import FrameType


def interrupt(number: int, frame: FrameType | None) -> None:
    """The first Ctrl-C ends the command in order, a second one at once."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise KeyboardInterrupt
