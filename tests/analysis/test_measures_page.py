"""docs/measures.md: its example runs as written, and it lists every measurement there is."""

import re
from pathlib import Path

from torchcaps.tasks.measurements import MEASUREMENTS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "measures.md").read_text(encoding="utf-8")
NAMES = ["Measure" + name.title().replace("-", "") for name in MEASUREMENTS]


def test_the_examples_run_as_written_one_after_the_other(capsys):
    known = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.S):
        exec(compile(block, "block", "exec"), known)
    assert "classes" in capsys.readouterr().out


def test_every_measurement_is_listed_once_and_nothing_else():
    assert sorted(re.findall(r"^\| `(Measure\w+)", PAGE, flags=re.M)) == sorted(NAMES)
