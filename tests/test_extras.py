"""Rooms that need what not everybody has say from Python which extra brings it."""

import subprocess
import sys
from pathlib import Path

import pytest

from error_text import cases_of

ASKED = cases_of(Path(__file__).with_name("extras.txt"))
CODE = """
import sys
sys.modules |= {"lightning": None, "matplotlib": None, "scipy": None}
for line in sys.argv[1:]:
    try:
        exec(line)
    except ModuleNotFoundError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def said():
    """One process for all: a room that failed is tried anew."""
    lines = [case.id for case in ASKED]
    words = [sys.executable, "-c", CODE, *lines]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return dict(zip(lines, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize(("line", "sentence"), ASKED)
def test_a_missing_package_is_a_sentence_with_its_extra(said, line, sentence):
    """It was "No module named 'lightning'", which no extra of ours is called."""
    assert said[line] == sentence
