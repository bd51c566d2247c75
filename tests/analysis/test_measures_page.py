"""docs/measures.md: its example runs as written, and it lists every measurement there is."""

import re
from pathlib import Path

import pytest

from torchcaps import analysis
from torchcaps.analysis.by_name import TRACE_MEASUREMENTS
from torchcaps.train.measured_names import GRADIENTS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "measures.md").read_text(encoding="utf-8")
NAMES = [name for name in analysis.__all__ if re.match(r"Measure[A-Z]", name)]


def test_the_examples_run_as_written_one_after_the_other(capsys):
    known = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.S):
        exec(compile(block, "block", "exec"), known)
    assert "classes" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_every_measurement_is_listed(name):
    assert len(re.findall(rf"^\| `{name}[`(]", PAGE, flags=re.M)) == 1


def test_nothing_else_is_listed():
    assert set(re.findall(r"^\| `(Measure\w+)", PAGE, flags=re.M)) == set(NAMES)


@pytest.mark.parametrize(
    ("page", "heading"),
    [("measures.md", "## While training"), ("logging.md", "## Measurements while training")],
)
def test_what_can_be_measured_while_training_is_listed_by_name(page, heading):
    section = (DOCS / page).read_text(encoding="utf-8").partition(f"\n{heading}\n")[2]
    section = section.partition("\n## ")[0]
    named = set(re.findall(r"[a-z]+(?:-[a-z]+)*", section))
    others = {"causal-use", "fixed-point", "robustness", "selectivity", "fidelity", "separation"}
    assert {*TRACE_MEASUREMENTS, GRADIENTS} <= named
    assert not others & named
