"""Systems in one line of text: a preset, its options, fields of the recipe, what follows training.

    gu_capsnet kernel=3|5|7 :loss=binary @layer=4 +quantise

Words in this order or any other: NAME=VALUE is an option of the preset, :NAME=VALUE a field of the
recipe, @NAME=VALUE where in the network or when is looked, +STEP what is done after training.
`a|b` are alternatives and `2..5` is a range, so one line may stand for many cells. A number in
single quotes is a word.
"""

import itertools
import re
from typing import Any, NamedTuple

from torchcaps._words import value_of
from torchcaps.errors import TorchcapsError


class Cell(NamedTuple):
    """One system: a preset with all that was chosen for it."""

    model: str
    options: dict[str, Any]
    fields: dict[str, Any]
    at: dict[str, Any]
    after: tuple[str, ...]


def cells(text: str) -> tuple[Cell, ...]:
    """Every cell of a line; lines are parted by semicolons.

    >>> [cell.options for cell in cells("peer_deep_em n_layers=5..6")]
    [{'n_layers': 5}, {'n_layers': 6}]
    """
    return tuple(cell for line in text.split(";") for cell in _of_line(line.split()))


def _of_line(words: list[str]) -> list[Cell]:
    if not words:
        raise TorchcapsError("a line of cells must begin with the name of a preset, but is empty.")
    model, *rest = words
    after = tuple(word[1:] for word in rest if word.startswith("+"))
    choices = []
    for word in (each for each in rest if not each.startswith("+")):
        found = re.fullmatch(r"([:@]?)(\w+)=(\S+)", word)
        if found is None:
            raise TorchcapsError(
                f"cells of {model}: {word!r} must be NAME=VALUE, :FIELD=VALUE, @PLACE=VALUE or "
                f"+STEP."
            )
        kind, name, values = found.groups()
        choices.append([(kind, name, value) for value in _values(values)])
    made = []
    for chosen in itertools.product(*choices):
        options, fields, at = (
            {name: value for kind, name, value in chosen if kind == sign} for sign in ("", ":", "@")
        )
        made.append(Cell(model, options, fields, at, after))
    return made


def _values(text: str) -> list[Any]:
    if ranged := re.fullmatch(r"(\d+)\.\.(\d+)", text):
        return list(range(int(ranged[1]), int(ranged[2]) + 1))
    return [_value(word) for word in text.split("|")]


def _value(word: str) -> Any:
    if sides := re.fullmatch(r"(\d+)x(\d+)", word):
        return int(sides[1]), int(sides[2])
    return word.strip("'") if word.startswith("'") else value_of(word)
