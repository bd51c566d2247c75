"""The file of what a network says of each image."""

import csv
import io
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from torchcaps._paths import path_of, write_whole
from torchcaps._printable import printable
from torchcaps.errors import TorchcapsError
from torchcaps.tasks.evaluation import Evaluation

# Where a cell begins as a formula does; a number or a sign alone is none. Some programs part cells
# at semicolons too.
_FORMULA = re.compile(r"(?:^|(?<=;))(?=[=+\-@])(?![+-]?[\d.]*(?:;|$))")


def write_predictions(found: Evaluation, path: str | os.PathLike[str]) -> None:
    """Write one line an image: index, file where it has one, label, predicted, right, scores. JSON
    lines or CSV by the ending.

    Scores stand in the order of the classes; several classes of one image are joined by +.

    Arguments:
        found: what `evaluate` gave.
        path: the file, ending in .csv or .jsonl.

    >>> write_predictions(evaluate(model, test), Path("said.csv"))
    """
    path = path_of("path", path)
    write_whole(path, writer_of(path)(found))


def writer_of(path: Path) -> Callable[[Evaluation], str]:
    """Choose how to write this file; a sentence when it could not be written."""
    writers: dict[str, Callable[[Evaluation], str]] = {
        ".jsonl": _json_lines,
        ".csv": lambda found: as_csv(rows_of(found), found.class_names),
    }
    if path.suffix not in writers:
        raise TorchcapsError(
            f"the file of predictions must end in .jsonl (JSON lines) or .csv, but is {path}."
        )
    if path.is_dir():
        raise TorchcapsError(f"{path} is a folder; name a file in it, as predictions.csv.")
    if not path.parent.is_dir():
        raise TorchcapsError(f"the folder {path.parent} does not exist; make it, or name another.")
    return writers[path.suffix]


def rows_of(found: Evaluation) -> list[dict[str, Any]]:
    """Say of every image what is written in its line."""
    names = [_in_utf8(name) for name in found.class_names]

    def named(classes: Tensor) -> str:
        return "+".join(names[k] for k in classes.nonzero()[:, 0].tolist())

    there, files = found.there, found.files
    return [
        {
            "index": at,
            **({"file": _in_utf8(files[at])} if files else {}),
            "label": named(there[at]),
            "predicted": named(found.said[at]),
            "right": bool(found.right[at]),
            # Nine digits tell every float32 from its neighbours.
            "scores": [float(f"{score:.9g}") for score in found.scores[at].tolist()],
        }
        for at in range(len(found.right))
    ]


def _in_utf8(name: str) -> str:
    """Write names of files and folders that are no UTF-8 with backslashes."""
    return name.encode(errors="backslashreplace").decode()


def _json_lines(found: Evaluation) -> str:
    lines = [json.dumps(row, ensure_ascii=False) for row in rows_of(found)]
    # What steers a terminal becomes its escape, from which a reader has the same name.
    lines = [line if printable(line) == line else json.dumps(json.loads(line)) for line in lines]
    return "".join(f"{line}\n" for line in lines)


def as_csv(rows: list[dict[str, Any]], class_names: Sequence[str]) -> str:
    """Write rows of the same names, of which the last has a score for each class, as CSV."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    facts = [name for name in rows[0] if name != "scores"]
    table.writerow([*facts, *(f"score {as_cell(name)}" for name in class_names)])
    for row in rows:
        scores = row.pop("scores")
        table.writerow([*map(as_cell, row.values()), *scores])
    return text.getvalue()


def as_cell(value: Any) -> Any:
    """Write text so that no table program takes it for a formula, and no terminal for a command."""
    if not isinstance(value, str):
        return value
    return _FORMULA.sub("'", printable(_in_utf8(value), keep=""))
