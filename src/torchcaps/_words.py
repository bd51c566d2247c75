"""A word of a command line, as the value that it stands for."""

import json
from typing import Any

# Of a whole number that counts something: Python itself refuses to read thousands of them.
DIGITS = 12


def value_of(word: str) -> Any:
    """Give a JSON value, true or false in Python's spelling too, or else the word itself.

    >>> value_of("0.5"), value_of("True"), value_of("uniform")
    (0.5, True, 'uniform')
    """
    try:
        # Python's spelling is what `torchcaps models` prints.
        return json.loads({"True": "true", "False": "false"}.get(word, word))
    except (ValueError, RecursionError):
        return word
