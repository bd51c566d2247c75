"""Rooms that need what not everybody has say from Python which extra brings it."""

import subprocess
import sys

import pytest

NEEDS_LIGHTNING = (
    "torchcaps.train needs lightning, which comes with the extra [train]: pip install "
    "'torchcaps[train]'."
)
NEEDS_MATPLOTLIB = (
    "torchcaps.viz needs matplotlib, which comes with the extra [study]: pip install "
    "'torchcaps[study]'."
)
ASKED = {
    "import torchcaps as tc; tc.train": NEEDS_LIGHTNING,
    "from torchcaps import train": NEEDS_LIGHTNING,
    "from torchcaps.train import fit": NEEDS_LIGHTNING,
    "from torchcaps.tasks import predict": NEEDS_LIGHTNING,
    "import torchcaps as tc; tc.viz.draw_keys": NEEDS_MATPLOTLIB,
    "from torchcaps.study import mean_interval": (
        "torchcaps.study needs scipy, which comes with the extra [study]: pip install "
        "'torchcaps[study]'."
    ),
    "from torchcaps.report import render": NEEDS_MATPLOTLIB.replace("viz", "report"),
}
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
    line = [sys.executable, "-c", CODE, *ASKED]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return dict(zip(ASKED, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("line", ASKED)
def test_a_missing_package_is_a_sentence_with_its_extra(said, line):
    """It was "No module named 'lightning'", which no extra of ours is called."""
    assert said[line] == ASKED[line]
