"""The command line: parse, call one function, print.

Each command is a file of this folder. Data goes to standard output, talk to standard error. Exit
codes: 0 done, 1 a fault of torchcaps (with a traceback to report), 2 something given was wrong (one
sentence), 130 stopped before its end: interrupted, told to stop, or out of its time budget.
"""

import signal
import sys

from torchcaps._ctrl_c import interrupt

__all__ = ["main"]

STOPPED = 130


def main() -> None:
    """Run the command line; bad input ends in one sentence, never in a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        # Here, for it takes a second, in which somebody may think better of it.
        from torchcaps.cli.application import app
        from torchcaps.cli.escapes import escape_what_is_said

        escape_what_is_said()
        app(prog_name="torchcaps")
    except KeyboardInterrupt:
        _stop()
    except SystemExit as end:
        # What Typer makes of Ctrl-C, without a word.
        if end.code == STOPPED:
            _stop()
        raise
    except Exception as error:
        from torchcaps._printable import printable
        from torchcaps.cli.failures import failure_of

        failure = failure_of(error)
        if failure is None:
            raise
        if failure.code == STOPPED and signal.getsignal(signal.SIGINT) is interrupt:
            # Training heard the first Ctrl-C; nobody would catch what a second one raises.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        print(f"torchcaps: {printable(failure.sentence)}", file=sys.stderr)
        sys.exit(failure.code)


def _stop() -> None:
    print(
        "torchcaps: interrupted; the same command starts again, or goes on where a run was saved.",
        file=sys.stderr,
    )
    sys.exit(STOPPED)
