"""Log lines and warnings, of libraries too: names in them reach the terminal as text."""

import logging
import warnings
from typing import Any

from torchcaps._printable import printable

_formatted = warnings.formatwarning


class _Record(logging.LogRecord):
    def getMessage(self) -> str:
        return printable(super().getMessage())


def escape_what_is_said() -> None:
    """Escape from now on, for all of the process, what any logger or handler says."""
    logging.setLogRecordFactory(_Record)
    warnings.formatwarning = _shown


def _shown(*warning: Any, **more: Any) -> str:
    return printable(_formatted(*warning, **more))
