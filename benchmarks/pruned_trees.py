"""Does pruning lower the entropy of the parse trees? DR-CapsNet pruned in every way, and controls.

python benchmarks/pruned_trees.py FOLDER --root DATA             # for hours: see --dry-run
python benchmarks/pruned_trees.py FOLDER --root DATA --dry-run   # what is trained, and its hours
python benchmarks/pruned_trees.py FOLDER --there                 # tells of what is there
python benchmarks/pruned_trees.py FOLDER --root DATA --middle    # two hours of one core a seed
python benchmarks/pruned_trees.py FOLDER --root DATA --reduced   # 10 minutes of one core a seed

The whole plan, for MNIST and Fashion-MNIST and three seeds: `rem_dr` with a trunk of 128 channels,
20,000 images and 30 epochs. `dense`, as it is at its last epoch, is what everything is compared
with; `longer` is the same trained for a third as many epochs more. `random_masks` and
`mask_at_the_end` have the sparsity of `magnitude`, 90 % in each layer. `lamp`, which the whole plan
leaves out, has 90 % of all weights, of each layer as many as LAMP scores say. `lobster` stops at
the sparsity that the paper prints, and `mask_like_lobster` masks the dense network as far as
LOBSTER came. `only_shrinks`, which the whole plan leaves out too, shrinks weights as `lobster` does
and prunes none. SNIP is for one seed, random masks, `longer` and SNIP are for MNIST alone: they are
controls, and all of it has to fit into 12 hours of two cores. One network needs one core, so two of
these lines run side by side, one with --data mnist and one with --data fashion-mnist.

--middle asks the same of both sets with a trunk of 32 channels, as many images and 12 epochs.
LOBSTER shrinks weights as much as in 300 epochs of the paper's public code, as in the whole plan;
with --shrink 3.4e-3 three times as much, of which there are records too.
The records of `magnitude`, `lobster` and their `dense` are of --precision bfloat16, which takes a
CPU with instructions for it: on one without, a step takes 15 times as long as in float32.
--reduced asks it of MNIST with a trunk of 16 channels, 8 primary types, 5,000 images and 12 epochs,
in every way.

Entropy is of the test images, with couplings on 11 levels for every network, and with as many as
the paper's rule chooses on validation images, which differ from network to network. The same line
goes on where it was stopped; --time-budget says when it stops.

Writes FOLDER/pruned_trees.json, one row a network; for every way whose seeds are all there a record
into --evidence, with the seeds that a record of it has, so that --seeds 0 can be run on one machine
and --seeds 1 2 on another; and prints means, and differences to `dense` seed by seed, with 95 %
t-intervals.
"""

import argparse
import json
import math
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from torchcaps._paths import write_whole
from torchcaps.cli.arguments import seconds_of
from torchcaps.errors import Interrupted, TorchcapsError
from torchcaps.study.collect import record_of_runs
from torchcaps.study.intervals import mean_interval
from torchcaps.study.look import Look
from torchcaps.study.measure import look_at
from torchcaps.study.record import Record, make_record, read_records, write_record
from torchcaps.study.same import trained_in
from torchcaps.tasks import dictionary, evaluate_file, prune_run
from torchcaps.train import Run, fit, make_recipe
from torchcaps.train.folder.environment import environment
from torchcaps_claims.pruned import MATCHED

AUGMENT = {"mnist": "shift2", "fashion-mnist": "shift2-flip"}
LAYERWISE = {"prune_to": 0.9, "prune_scope": "layer"}
# By the name of a way: the fields that it adds to the recipe.
WAYS: dict[str, dict[str, Any]] = {
    "dense": {},
    "magnitude": {"prune": "magnitude", **LAYERWISE},
    # With as many zeros, but each layer has the share that LAMP gives it.
    "lamp": {"prune": "magnitude", "prune_to": 0.9, "prune_scope": "lamp"},
    "lobster": {"prune": "lobster"},
    # It shrinks as many steps, and prunes nothing.
    "only_shrinks": {"prune": "lobster", "prune_to": 0.0},
    "random_masks": {"prune": "random_masks", **LAYERWISE},
    "snip": {"prune": "snip", "prune_to": 0.9},
    # Of the dense run, whose training is not repeated.
    "mask_at_the_end": {"prune": "mask_at_the_end", **LAYERWISE},
    "mask_like_lobster": {"prune": "mask_at_the_end", "prune_scope": "network"},
    "longer": {},
}
MASKED = ("mask_at_the_end", "mask_like_lobster")
# In all but the reduced form, to save hours: these for both sets, the others for MNIST, and one for
# one seed.
BOTH = ("dense", "magnitude", "lamp", "lobster", "only_shrinks", *MASKED)
NOT_IN_WHOLE = ("lamp", "only_shrinks")
ONE_SEED = ("snip",)
# Images held out, of all 60,000: 1,200, so that a tenth of a point is one image, and few, since
# LOBSTER looks at all of them again and again.
HELD_OUT = 0.02
LEVELS = 11
CLAIMS = ("rem-q-entropy-falls-by-pruning", "rem-q-any-pruning")
STUDY = "renzulli2025/pruned_trees"
# A control of ours, for which no claim asks, and which no judge may take for LOBSTER.
OF_SHRINKING = "renzulli2025/only_shrinks"


class Form(NamedTuple):
    """How large the question is asked."""

    seeds: tuple[int, ...]
    data: tuple[str, ...]
    fields: dict[str, Any]
    # Of LOBSTER, whose steps are the fewer the smaller the form is.
    shrink: float
    # CPU seconds of one thread for 128 images: of a step, and of looking at them.
    step: float
    look: float
    said: str
    # All ways for all sets and seeds.
    every: bool = False


SHARED = {"model": "rem_dr", "validation_share": HELD_OUT, "schedule": "exponential"}
WHOLE = Form(
    (0, 1, 2),
    tuple(AUGMENT),
    {**SHARED, "options": {"width": 128}, "train_images": 20_000, "epochs": 30, "decay": 0.99},
    # 1e-4 times 422 steps in each of 300 epochs, spread over 157 in each of 30; λ falls by a
    # hundredth an epoch in both.
    1e-3,
    0.67,
    0.29,
    "a trunk of 128 channels, 20,000 training images, 30 epochs; LOBSTER shrinks weights as much "
    "as in 300 epochs of the paper's public code",
)
REDUCED = Form(
    (0, 1, 2),
    ("mnist",),
    {
        **SHARED,
        "options": {"width": 16, "types": 8},
        "train_images": 5_000,
        "epochs": 12,
        "batch_size": 64,
        "decay": 0.9,
    },
    1e-3,
    0.07,
    0.03,
    "a trunk of 16 channels and 8 primary types, 5,000 training images, 12 epochs; LOBSTER shrinks "
    "ten times as fast, for it has a hundredth of the steps",
)


MIDDLE = Form(
    (0, 1, 2),
    tuple(AUGMENT),
    {
        **SHARED,
        "options": {"width": 32},
        "train_images": 20_000,
        "epochs": 12,
        "batch_size": 64,
        "decay": 0.8,
    },
    # 1e-4 times 422 steps in each of 300 epochs, λ falling by a hundredth an epoch, spread over 313
    # steps in each of 12.
    1.1e-3,
    0.38,
    0.11,
    "a trunk of 32 channels, 20,000 training images, 12 epochs; LOBSTER shrinks weights as "
    "much as in 300 epochs of the paper's public code",
)


class Cell(NamedTuple):
    """One network."""

    data: str
    seed: int
    way: str

    def folder(self, root: Path, way: str | None = None) -> Path:
        return root / self.data / str(self.seed) / (way or self.way)


def cells_of(form: Form) -> list[Cell]:
    """A seed of all ways before the next, so that what is there can be compared at any time."""
    every = [Cell(data, seed, way) for seed in form.seeds for data in form.data for way in WAYS]
    if form.every or form.said == REDUCED.said:
        return every
    return [
        cell
        for cell in every
        if (cell.way not in NOT_IN_WHOLE or form.said != WHOLE.said)
        and (cell.way in BOTH or cell.data == "mnist")
        and (cell.way not in ONE_SEED or cell.seed == 0)
    ]


def fields_of(form: Form, cell: Cell) -> dict[str, Any]:
    """The recipe of a cell."""
    fields = {**form.fields, "data": cell.data, "seed": cell.seed, **WAYS[cell.way]}
    fields["augment"] = AUGMENT[cell.data]
    if cell.way in ("magnitude", "lamp"):
        fields["prune_ramp"] = max(1, form.fields["epochs"] // 2)
    if cell.way in ("lobster", "only_shrinks"):
        fields["prune_shrink"] = form.shrink
    if cell.way == "lobster":
        fields["prune_to"] = MATCHED[cell.data] / 100
    if cell.way == "longer":
        fields["epochs"] = form.fields["epochs"] * 4 // 3
    return fields


def hours(form: Form, cell: Cell) -> float:
    """Estimate one network, in hours of two cores that each train one."""
    epochs = fields_of(form, cell)["epochs"]
    if cell.way in MASKED:
        epochs = 0
    if cell.way == "longer":
        epochs -= form.fields["epochs"]
    looks = 11 if cell.way == "lobster" else 1
    held_out = HELD_OUT * 60_000
    an_epoch = form.fields["train_images"] / 128 * form.step + looks * held_out / 128 * form.look
    # Of 10,000 test images, six times.
    measuring = 6 * 10_000 / 128 * form.look
    return (epochs * an_epoch + measuring) / 3600 / 2


def network(folder: Path, form: Form, cell: Cell, root: Path | None, seconds: float | None) -> Run:
    """The run of one cell."""
    here, dense = cell.folder(folder), cell.folder(folder, "dense")
    here.parent.mkdir(parents=True, exist_ok=True)
    if cell.way in MASKED:
        how = {name: value for name, value in WAYS[cell.way].items() if name != "prune"}
        if cell.way == "mask_like_lobster":
            reached = Run(cell.folder(folder, "lobster")).result()["sparsity"]["share"]
            how["prune_to"] = round(reached, 4)
        return prune_run(dense, here, by="mask_at_the_end", root=root, fields=how)
    if cell.way == "longer" and not here.exists():
        # It goes on where the dense one stopped.
        partial = here.with_name("longer.partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(dense, partial)
        partial.rename(here)
    recipe = make_recipe(**fields_of(form, cell))
    label = f"{cell.way}, seed {cell.seed}"
    return fit(recipe, here, root=root, label=label, time_budget=seconds)


def row_of(run: Run, cell: Cell, root: Path | None) -> dict[str, Any]:
    """What is measured of a network, under the names that studies use; written down once."""
    file = run.folder.with_name(f"{cell.way}.json")
    if file.is_file():
        return dict(json.loads(file.read_text()))
    on_grid = [Look(kind, cell.data, levels=(LEVELS,)) for kind in ("keys", "accuracy")]
    values: dict[str, Any] = {"accuracy": 100 * run.result()["test_accuracy"]}
    for look in on_grid:
        found = look_at(run, look, root=root)
        shown = ("accuracy", "entropy", "entropy_bound", "keys")
        values |= {look.key(n, tested_on=cell.data): found[n] for n in shown if n in found}
    chosen = dictionary(run.folder, root=root)
    votes = evaluate_file(run.folder, root=root, measurements=("zero-votes",))
    zero = json.loads(votes.measured["zero-votes"].to_json())["layers"][-1]
    values |= {
        "entropy_at_chosen_levels": chosen.entropy,
        "accuracy_at_chosen_levels": 100 * chosen.accuracy,
        "chosen_levels": chosen.levels[-1],
        "sparsity": 100 * run.result().get("sparsity", {}).get("share", 0.0),
        "zero_blocks": zero["zero_blocks"],
        "zero_blocks_expected": zero["expected"],
        "zero_votes": zero["zero_votes"],
    }
    row = {
        **cell._asdict(),
        "machine": run.began()["machine"],
        "measured_by": environment()["commit"],
        "values": values,
    }
    write_whole(file, json.dumps(row, indent=1))
    return row


def rows_there(folder: Path, cells: list[Cell]) -> list[dict[str, Any]]:
    """Read the rows that are written down already, whether their runs are here or not."""
    files = [cell.folder(folder).with_name(f"{cell.way}.json") for cell in cells]
    return [dict(json.loads(file.read_text())) for file in files if file.is_file()]


def write_evidence(folder: Path, form: Form, rows: list[dict[str, Any]], evidence: Path) -> None:
    """A record for every way of which all seeds of the form are there, with those that its record
    has already."""
    for data in form.data:
        for way in WAYS:
            some = [row for row in rows if (row["data"], row["way"]) == (data, way)]
            of_way = [cell for cell in cells_of(form) if (cell.data, cell.way) == (data, way)]
            if not of_way or len(some) < len(of_way) or way == "mask_like_lobster":
                # The sparsity of the last one differs from seed to seed, so its recipes do.
                continue
            record = record_of_runs(
                [cell.folder(folder) for cell in of_way],
                study=OF_SHRINKING if way == "only_shrinks" else STUDY,
                claims=() if way == "only_shrinks" else CLAIMS,
                measured={row["seed"]: row["values"] for row in some},
                measured_by=[row["measured_by"] for row in some],
                reduced=said_of(form),
                departures=("entropy with couplings on 11 levels is named entropy+K11",),
            )
            old = standing(evidence, record)
            if old is not None:
                name, earlier = old
                if {cell.seed for cell in of_way} <= {each.seed for each in earlier.seeds}:
                    continue
                # Seeds of another machine, which kept no runs here.
                record = with_seeds_of(earlier, record.model_copy(update={"supersedes": name}))
            write_record(record, evidence)


def with_seeds_of(earlier: Record, new: Record) -> Record:
    """The new record with the seeds of an earlier one, and the commits and machines of both."""
    if earlier.data != new.data:
        raise TorchcapsError(f"the record {earlier.digest()} is of other images than the runs here")

    def both(*texts: str | None) -> str:
        parts = [part for text in texts if text for part in text.split(", ")]
        return ", ".join(dict.fromkeys(parts))

    seeds = {each.seed: each for each in (*earlier.seeds, *new.seeds)}
    first = earlier if min(seeds) == earlier.seeds[0].seed else new
    fields = new.model_dump() | {
        "seeds": tuple(seeds[number] for number in sorted(seeds)),
        "recipe": first.recipe,
        "recipe_hash": first.recipe_hash,
        "command": first.command,
        "commit": both(earlier.commit, new.commit) if new.commit else None,
        "dirty": earlier.dirty or new.dirty,
        "device": "; ".join(dict.fromkeys((earlier.device, new.device))),
        "versions": {n: both(earlier.versions.get(n), each) for n, each in new.versions.items()},
    }
    return make_record(**fields)


def said_of(form: Form) -> str:
    """How its networks are smaller than the paper's, with another λ than its own too."""
    if form.shrink in (WHOLE.shrink, MIDDLE.shrink, REDUCED.shrink):
        return form.said
    return f"{form.said.partition(';')[0]}; LOBSTER shrinks weights by {form.shrink:g} a step"


def standing(evidence: Path, new: Record) -> tuple[str, Record] | None:
    """The fullest record of the same networks, of whatever seeds, that is there already, with its
    hash. Seeds of a draft would make a draft of all the others."""
    records = read_records(evidence, study=new.study, drafts=new.is_draft).items()
    alike = [(name, each) for name, each in records if trained_in(each) == trained_in(new)]
    return max(alike, key=lambda each: (each[1].measured, each[1].made), default=None)


def main() -> None:
    asked = arguments()
    form = REDUCED if asked.reduced else MIDDLE if asked.middle else WHOLE
    form = form._replace(
        seeds=tuple(asked.seeds or form.seeds),
        data=tuple(asked.data or form.data),
        fields={**form.fields, "precision": asked.precision},
        shrink=form.shrink if asked.shrink is None else asked.shrink,
        every=asked.every,
    )
    cells = [cell for cell in cells_of(form) if cell.way in asked.ways]
    if asked.dry_run:
        for cell in cells:
            print(f"{cell.data:<14} seed {cell.seed}  {cell.way:<18} {hours(form, cell):.2f} h")
        print(
            f"{len(cells)} networks, {sum(hours(form, each) for each in cells):.1f} h of two cores"
        )
        return
    if asked.there:
        tell(rows_there(asked.folder, cells), form)
        return
    until = None if asked.time_budget is None else time.monotonic() + seconds_of(asked.time_budget)
    rows = []
    try:
        for cell in cells:
            left = None if until is None else max(1.0, until - time.monotonic())
            run = network(asked.folder, form, cell, asked.root, left)
            rows.append(row_of(run, cell, asked.root))
            record = {"form": form.said, "environment": environment(), "rows": rows}
            write_whole(asked.folder / "pruned_trees.json", json.dumps(record, indent=1))
    except Interrupted as stop:
        print(stop, file=sys.stderr)
        sys.exit(130)
    finally:
        tell(rows, form)
    write_evidence(asked.folder, form, rows, asked.evidence)


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """What every benchmark of pruned runs is told: their folder, and where the images are."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--root", type=Path)
    return parser


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--data", nargs="+", choices=AUGMENT)
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--every", action="store_true", help="all ways of all sets and seeds")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--shrink", type=float, help="λ of LOBSTER, in place of the form's")
    parser.add_argument("--evidence", type=Path, default=Path("evidence"))
    parser.add_argument("--time-budget")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--there", action="store_true", help="tell of what is there, train nothing")
    smaller = parser.add_mutually_exclusive_group()
    smaller.add_argument("--middle", action="store_true")
    smaller.add_argument("--reduced", action="store_true")
    return parser.parse_args()


SHOWN = ("accuracy", "accuracy+K11", "entropy+K11", "keys+K11", "sparsity", "zero_blocks")


def tell(rows: list[dict[str, Any]], form: Form) -> None:
    """Means, and by how much a way lies above `dense`, seed by seed."""
    values = {(row["data"], row["seed"], row["way"]): row["values"] for row in rows}
    for data in form.data:
        for way in WAYS:
            some = [found for (d, _, w), found in values.items() if (d, w) == (data, way)]
            if some:
                print(f"{data:<14} {way:<18} " + "  ".join(shown(some, n) for n in SHOWN))
        for way in WAYS:
            pairs = [
                found["entropy+K11"] - values[d, seed, "dense"]["entropy+K11"]
                for (d, seed, w), found in values.items()
                if (d, w) == (data, way) and way != "dense" and (d, seed, "dense") in values
            ]
            if pairs:
                print(f"{data:<14} {way:<18} entropy − dense {interval(pairs)}")


def shown(rows: list[dict[str, Any]], name: str) -> str:
    return f"{name} {interval([row[name] for row in rows])}"


def interval(values: list[float]) -> str:
    found = mean_interval(values)
    if found.low is None or found.high is None or math.isclose(found.low, found.high):
        return f"{found.mean:.3f}"
    return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
