"""What does it cost to prune nine in ten weights of a network that is trained already?

python benchmarks/pruned_again.py FOLDER --root DATA          # three seeds: four hours of one core
python benchmarks/pruned_again.py FOLDER --root DATA --wide   # six hours, of a core with bfloat16

DR-CapsNet with a trunk of 32 channels, on 20,000 images of MNIST and of Fashion-MNIST: the `dense`
of `pruned_trees.py --middle`, whose runs in FOLDER are taken where they are there. Its first
learning rate comes back, and it trains for ten epochs more, once with nine in ten weights pruned by
LAMP scores in the first five of them (`rewound`), and once with all of its weights (`again`): what
pruning costs is the difference of these two, seed by seed. Beside the network as it was, a pruned
one would be credited with what the ten epochs bring.

--wide asks the same of a trunk of 128 channels, half as wide as the paper's, in bfloat16: twelve
epochs and eighteen more, in which the learning rate falls by a tenth an epoch and pruning ends
after six.

Prints means and differences with 95 % t-intervals, and writes FOLDER/pruned_again.json, one row a
network. Stopped, the same line goes on. --record copies the file into benchmarks/records.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from pruned_trees import (
    AUGMENT,
    MIDDLE,
    Cell,
    Form,
    fields_of,
    interval,
    network,
    parser_of,
    row_of,
    shown,
)

from torchcaps._paths import write_whole
from torchcaps.cli.arguments import seconds_of
from torchcaps.errors import Interrupted
from torchcaps.tasks import prune_run
from torchcaps.train import Run, fit, make_recipe
from torchcaps.train.folder.environment import environment

RECORDS = Path(__file__).parent / "records"
WAYS = ("dense", "again", "rewound")
# A learning rate that comes back to where it began.
ANEW: dict[str, Any] = {"learning_rate": 1e-3, "schedule": "exponential"}
PRUNED = {"prune_scope": "lamp"}


class Course(NamedTuple):
    """A network that is trained, and how it is trained for longer."""

    form: Form
    epochs: int
    # How many of them prune.
    ramp: int
    decay: float
    record: str


# The learning rate falls as it fell.
NARROW = Course(MIDDLE, 10, 5, 0.8, "pruned_again.json")
WIDE = Course(
    MIDDLE._replace(
        fields={**MIDDLE.fields, "options": {"width": 128}, "precision": "bfloat16"},
        said="a trunk of 128 channels, 20,000 training images, 12 epochs and 18 more, in bfloat16",
    ),
    18,
    6,
    0.9,
    "pruned_again_wide.json",
)
SPARSITY = 0.9
SHOWN = ("accuracy", "accuracy+K11", "entropy+K11", "keys+K11", "sparsity")


def main() -> None:
    asked = arguments()
    course = WIDE if asked.wide else NARROW
    until = None if asked.time_budget is None else time.monotonic() + seconds_of(asked.time_budget)
    rows: list[dict[str, Any]] = []
    try:
        for cell in (Cell(d, s, w) for s in asked.seeds for d in asked.data for w in WAYS):
            cell.folder(asked.folder).parent.mkdir(parents=True, exist_ok=True)
            left = None if until is None else max(1.0, until - time.monotonic())
            rows.append(
                row_of(trained(asked.folder, course, cell, asked.root, left), cell, asked.root)
            )
    except Interrupted as stop:
        print(stop, file=sys.stderr)
        sys.exit(130)
    finally:
        tell(rows)
    record = {"form": course.form.said, "environment": environment(), "rows": rows}
    write_whole(asked.folder / "pruned_again.json", json.dumps(record, indent=1))
    if asked.record:
        write_whole(RECORDS / course.record, json.dumps(record, indent=1) + "\n")


def trained(
    folder: Path, course: Course, cell: Cell, root: Path | None, seconds: float | None
) -> Run:
    """The run of one cell."""
    if cell.way == "dense":
        return network(folder, course.form, cell, root, seconds)
    here, dense = cell.folder(folder), Run(cell.folder(folder, "dense"))
    anew = {**ANEW, "decay": course.decay}
    both: dict[str, Any] = {"root": root, "time_budget": seconds}
    if cell.way == "rewound":
        fields = {**anew, **PRUNED, "prune_ramp": course.ramp}
        epochs = course.epochs
        return prune_run(dense.folder, here, to=SPARSITY, epochs=epochs, fields=fields, **both)
    fields = {**fields_of(course.form, cell._replace(way="dense")), **anew, "epochs": course.epochs}
    recipe, label = make_recipe(**fields), f"again, seed {cell.seed}"
    return fit(recipe, here, begin_with=dense.model_file, label=label, **both)


def tell(rows: list[dict[str, Any]]) -> None:
    """Means, and what pruning costs, seed by seed."""
    values = {(row["data"], row["seed"], row["way"]): row["values"] for row in rows}
    for data in AUGMENT:
        for way in WAYS:
            some = [found for (d, _, w), found in values.items() if (d, w) == (data, way)]
            if some:
                print(f"{data:<14} {way:<8} " + "  ".join(shown(some, name) for name in SHOWN))
        for name in ("accuracy", "entropy+K11"):
            pairs = [
                found[name] - values[d, seed, "again"][name]
                for (d, seed, way), found in values.items()
                if (d, way) == (data, "rewound")
            ]
            if pairs:
                print(f"{data:<14} rewound − again: {name} {interval(pairs)}")


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--data", nargs="+", choices=AUGMENT, default=list(AUGMENT))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(MIDDLE.seeds))
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--time-budget")
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
