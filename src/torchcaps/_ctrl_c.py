"""How the command line answers Ctrl-C; training takes over from it, to save the step first."""

import signal
from types import FrameType


def interrupt(number: int, frame: FrameType | None) -> None:
    """Let the first Ctrl-C end the command in order, a second one at once."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise KeyboardInterrupt
