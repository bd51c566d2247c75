"""The layout of convolutions that a recipe has by default is the one that was measured faster."""

import json
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from torchcaps.models import MODELS
from torchcaps.models.layout import FASTER_WITH_CHANNELS_LAST, is_faster_with_channels_last

RECORD = Path(__file__).parents[2] / "benchmarks" / "records" / "layouts.json"
ROWS = [
    row
    for row in json.loads(RECORD.read_text(encoding="utf-8"))["rows"]
    if row["precision"] == "float32"
]


def test_every_pattern_names_a_model():
    for pattern in FASTER_WITH_CHANNELS_LAST:
        assert any(fnmatchcase(name, pattern) for name in MODELS), pattern


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["model"])
def test_the_table_says_what_was_measured(row):
    train, predict = (row[task]["times_as_fast_by_cpu_time"] for task in ("train", "predict"))
    faster = train >= 1.1 and predict >= 1
    assert is_faster_with_channels_last(row["model"], "float32") is faster


def test_half_precision_stays_with_the_channels_first():
    assert is_faster_with_channels_last("efficient_capsnet", "float32")
    assert not is_faster_with_channels_last("efficient_capsnet", "bfloat16")
    assert not is_faster_with_channels_last("efficient_capsnet", "float16")
