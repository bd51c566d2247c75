"""Results as JSON: every number comes back, and says its unit."""

import dataclasses
import json

import pytest
import torch

from torchcaps.analysis.result import Result, quantity


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    length: float = quantity("metre", "how long it is")


@dataclasses.dataclass(frozen=True)
class Table(Result):
    rows: tuple[Row, ...]
    weight: float = quantity("kilogram", "how heavy it is")
    each: torch.Tensor | None = None


def test_values_and_units_come_back():
    table = Table((Row("a", 1.5), Row("b", 0.1)), 2.0, torch.tensor([[True, False]]))
    assert json.loads(table.to_json()) == {
        "rows": [{"name": "a", "length": 1.5}, {"name": "b", "length": 0.1}],
        "weight": 2.0,
        "each": [[True, False]],
        "units": {"length": "metre", "weight": "kilogram"},
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        Table((), value).to_json()
