"""Results as JSON: every number comes back, and says its unit."""

import dataclasses
import json

import pytest
import torch

from torchcaps.analysis import capsule_activity, routing_dynamics
from torchcaps.analysis.result import Result, quantity
from traces import network, switching

TRACE = network({"hidden": switching(3, 3), "classes": switching(3, 4)})


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


@pytest.mark.parametrize("measure", [routing_dynamics, capsule_activity])
def test_every_quantity_of_a_measurement_is_written(measure):
    result = measure(TRACE)
    written = json.loads(result.to_json())
    assert written["images"] == 3
    assert len(written["layers"]) == len(result.layers)
    for row, numbers in zip(result.layers, written["layers"], strict=True):
        for field in dataclasses.fields(row):
            value = getattr(row, field.name)
            value = value.tolist() if isinstance(value, torch.Tensor) else value
            assert numbers[field.name] == json.loads(json.dumps(value))
            if field.name not in ("name", "sweep"):
                assert written["units"][field.name] == field.metadata["unit"]
