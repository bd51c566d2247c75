"""Does pruning lower the entropy of the parse trees? DR-CapsNet pruned in every way, and controls.

python benchmarks/pruned_trees.py FOLDER --root DATA             # for days: see --dry-run
python benchmarks/pruned_trees.py FOLDER --root DATA --dry-run   # what is trained, and its hours
python benchmarks/pruned_trees.py FOLDER --tiny                  # that it runs

For MNIST and Fashion-MNIST and three seeds: `rem_dr` with a trunk of 128 channels, 20,000 images
and 30 epochs. `dense` is what everything is compared with; `random_masks` and `mask_at_the_end`
have the sparsity of `magnitude`, 90 % in each layer. LOBSTER looks at the validation images ten
times an epoch, which is counted. Levels for couplings are chosen on validation images by the
paper's rule; entropy is of the test images, with its bound beside it. The same line goes on where
it was stopped.

Writes FOLDER/pruned_trees.json, one row a network, and prints means with 95 % t-intervals.
"""

import argparse
import json
import math
import os
import statistics
from pathlib import Path
from typing import Any

from torchcaps.study.intervals import mean_interval
from torchcaps.tasks import dictionary, estimate, evaluate_file, prune_run
from torchcaps.train import Run, fit, make_recipe
from torchcaps.train.run import environment, write_whole

AUGMENT = {"mnist": "shift2", "fashion-mnist": "shift2-flip"}
LAYERWISE = {"prune_to": 0.9, "prune_scope": "layer"}
# By the name of a way: the fields that it adds to the recipe.
WAYS: dict[str, dict[str, Any]] = {
    "dense": {},
    "magnitude": {"prune": "magnitude", **LAYERWISE, "prune_ramp": 15},
    "lobster": {"prune": "lobster"},
    "random_masks": {"prune": "random_masks", **LAYERWISE},
    "snip": {"prune": "snip", "prune_to": 0.9},
    # Of the dense run, whose training is not repeated.
    "mask_at_the_end": {"prune": "mask_at_the_end", **LAYERWISE},
}
# Random masks and SNIP on the first set alone, to save hours.
BOTH = ("dense", "magnitude", "lobster", "mask_at_the_end")
SEEDS = (0, 1, 2)
# Images held out, of all 60,000: 1,200, so that a tenth of a point is one image, and few, since
# LOBSTER looks at all of them again and again.
HELD_OUT = 0.02
FLOPS_A_SECOND = 60e9


def fields_of(data: str, seed: int, *, tiny: bool) -> dict[str, Any]:
    """The recipe that all ways share."""
    if tiny:
        small = {"model": "rem_eff_mnist", "data": "part-whole", "epochs": 2, "batch_size": 32}
        return {**small, "train_images": 64, "seed": seed, "validation_share": 0.002}
    return {
        "model": "rem_dr",
        "options": {"width": 128},
        "data": data,
        "augment": AUGMENT[data],
        "train_images": 20_000,
        "validation_share": HELD_OUT,
        "epochs": 30,
        "schedule": "exponential",
        "decay": 0.99,
        "seed": seed,
    }


def hours(way: str) -> float:
    """Of one network, by its FLOPs at 60 GFLOP a second."""
    if way == "mask_at_the_end":
        return 0.0
    cost = estimate("rem_dr", width=128)
    looks = 11 if way == "lobster" else 1
    held = HELD_OUT * 60_000 / 128
    epoch = 20_000 / 128 * cost.flops_step + looks * held * cost.flops_forward
    return 30 * epoch / FLOPS_A_SECOND / 3600


def network(folder: Path, way: str, fields: dict[str, Any], root: Path | None) -> Run:
    """The run of one way."""
    if way == "mask_at_the_end":
        how = {name: value for name, value in WAYS[way].items() if name != "prune"}
        return prune_run(folder.with_name("dense"), folder, by=way, root=root, fields=how)
    more = dict(WAYS[way])
    if "prune_ramp" in more:
        more["prune_ramp"] = fields["epochs"] // 2
    return fit(
        make_recipe(**fields, **more), folder, root=root, label=f"{way}, seed {fields['seed']}"
    )


def row_of(run: Run, root: Path | None) -> dict[str, Any]:
    """What is measured of a network."""
    found = dictionary(run.folder, root=root)
    votes = evaluate_file(run.folder, root=root, measurements=("zero-votes",))
    zero = json.loads(votes.measured["zero-votes"].to_json())["layers"][-1]
    result = run.result()
    predicted = [each.images for each in found.classes if each.images]
    return {
        "accuracy": found.accuracy_before,
        "accuracy_quantised": found.accuracy,
        "levels": list(found.levels),
        "entropy": found.entropy,
        "bound": sum(map(math.log2, predicted)) / len(found.classes),
        "keys": statistics.mean(len(each.entries) for each in found.classes),
        "sparsity": result.get("sparsity", {}).get("share", 0.0),
        "zero_blocks": zero["zero_blocks"],
        "zero_votes": zero["zero_votes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--data", nargs="+", choices=AUGMENT, default=list(AUGMENT))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args()
    # A seed of all ways before the next seed, so that what is there can be compared at any time.
    cells = [
        (data, seed, way)
        for seed in asked.seeds
        for data in (asked.data[:1] if asked.tiny else asked.data)
        for way in asked.ways
        if way in BOTH or data == "mnist"
    ]
    if asked.dry_run:
        cost = {way: hours(way) for way in asked.ways}
        for data, seed, way in cells:
            print(f"{data:<14} seed {seed}  {way:<16} {cost[way]:.2f} h")
        print(f"{len(cells)} networks, {sum(cost[way] for *_, way in cells):.1f} h")
        return
    asked.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for data, seed, way in cells:
        folder = asked.folder / data / str(seed) / way
        folder.parent.mkdir(parents=True, exist_ok=True)
        run = network(folder, way, fields_of(data, seed, tiny=asked.tiny), asked.root)
        rows.append({"data": data, "seed": seed, "way": way, **row_of(run, asked.root)})
        record = {"tiny": asked.tiny, "environment": environment(), "rows": rows}
        write_whole(asked.folder / "pruned_trees.json", json.dumps(record, indent=1))
    for data in dict.fromkeys(row["data"] for row in rows):
        for way in asked.ways:
            some = [row for row in rows if (row["data"], row["way"]) == (data, way)]
            if some:
                print(f"{data:<14} {way:<16} " + "  ".join(told(some, n) for n in SHOWN))


SHOWN = ("accuracy", "accuracy_quantised", "entropy", "keys", "sparsity", "zero_blocks")


def told(rows: list[dict[str, Any]], name: str) -> str:
    values = [row[name] for row in rows]
    if len(values) < 2:
        return f"{name} {values[0]:.4f}"
    found = mean_interval(values)
    low, high = found.low, found.high
    return f"{name} {statistics.mean(values):.4f} [{low:.4f}, {high:.4f}]"


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    main()
