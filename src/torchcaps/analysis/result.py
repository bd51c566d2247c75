"""What every measurement returns: labelled numbers with their units, and JSON of them."""

import dataclasses
import json
from typing import Any

from torch import Tensor


def quantity(unit: str, meaning: str) -> Any:
    """Give a dataclass field that knows its unit and says in a phrase what it is."""
    return dataclasses.field(metadata={"unit": unit, "meaning": meaning})


class Result:
    """Base of the frozen dataclasses that measurements return."""

    def to_json(self) -> str:
        """Give every field by name, and the unit of each quantity under `units`."""
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


def quantities(kind: Any) -> dict[str, tuple[str, str]]:
    """List unit and meaning of each quantity of a dataclass, without those of its rows."""
    return {
        field.name: (field.metadata["unit"], field.metadata["meaning"])
        for field in dataclasses.fields(kind)
        if "unit" in field.metadata
    }


def row_of(field: dataclasses.Field[Any]) -> type | None:
    """Give the dataclass of which a field holds one or a tuple."""
    row, *_ = getattr(field.type, "__args__", (field.type,))
    return row if dataclasses.is_dataclass(row) and isinstance(row, type) else None


def _units(kind: Any) -> dict[str, str]:
    units = {}
    for field in dataclasses.fields(kind):
        if "unit" in field.metadata:
            units[field.name] = field.metadata["unit"]
        row = row_of(field)
        if row is not None:
            units |= _units(row)
    return units
