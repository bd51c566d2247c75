"""What every measurement returns: labelled numbers with their units, and JSON of them."""

import dataclasses
import json
from typing import Any

from torch import Tensor

__all__ = ["Result", "quantity"]


def quantity(unit: str, meaning: str) -> Any:
    """A dataclass field that knows its unit and says in a phrase what it is."""
    return dataclasses.field(metadata={"unit": unit, "meaning": meaning})


class Result:
    """Base of the frozen dataclasses that measurements return."""

    def to_json(self) -> str:
        """Every field by name, and the unit of each quantity under `units`."""
        return json.dumps({**_plain(self), "units": _units(type(self))}, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value


def _units(kind: Any) -> dict[str, str]:
    units = {}
    for field in dataclasses.fields(kind):
        if "unit" in field.metadata:
            units[field.name] = field.metadata["unit"]
        rows = getattr(field.type, "__args__", ())
        if rows and dataclasses.is_dataclass(rows[0]):
            units |= _units(rows[0])
    return units
