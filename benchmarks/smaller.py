"""A network that is pruned by types and really smaller: faster, half the file, as accurate?

python benchmarks/smaller.py DATA RUNS

DR-CapsNet with a trunk of 32 channels and 16 primary types learns 20,000 images of MNIST; then
types are pruned until 70 % of the weights are zero, what is left trains on, and the types are taken
out. "trained_longer" is the unpruned network with as many more epochs at the same rate: what
accuracy is to be compared with. One thread; both networks are timed in turns, so that whatever else
the machine does slows both.

The bar was set before: at least 1.3 times faster and 2 times smaller on disk, within 0.5 points.

DATA holds MNIST, RUNS gets a run folder for each network. Stopped, the same command goes on. Writes
benchmarks/records/smaller.json.
"""

import argparse
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from torchcaps.tasks import prune_run, shrink
from torchcaps.train import Run, fit, make_recipe
from torchcaps.train.environment import environment
from torchcaps.train.run import write_whole

RECORD = Path(__file__).parent / "records" / "smaller.json"
RECIPE: dict[str, Any] = {
    "model": "rem_dr",
    "options": {"width": 32, "types": 16},
    "data": "mnist",
    "augment": "shift2",
    "train_images": 20_000,
    "epochs": 8,
    "schedule": "exponential",
    "decay": 0.9,
}
# Of what is left, and of the unpruned network.
EPOCHS, LEARNING_RATE = 6, 3e-4
SPARSITY, RAMP = 0.7, 3
FASTER, SMALLER, POINTS = 1.3, 2.0, 0.5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", help="the folder that holds MNIST")
    parser.add_argument("runs", type=Path, help="a folder for the runs")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    asked.runs.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    dense, longer, pruned = trained(asked.runs, asked.data, asked.seed)
    with tempfile.TemporaryDirectory() as folder:
        small = shrink(pruned.folder, Path(folder) / "small.safetensors", root=asked.data)
    write(dense, longer, pruned, {**small.numbers(), "path": "small.safetensors"})


def trained(runs: Path, data: str, seed: int) -> tuple[Run, Run, Run]:
    """The network, the same trained for longer, and the pruned one."""
    recipe = make_recipe(**RECIPE, seed=seed)
    dense = fit(recipe, runs / f"dense-{seed}", root=data, label="dense")
    again = {"epochs": EPOCHS, "learning_rate": LEARNING_RATE, "schedule": "constant", "decay": 1.0}
    longer = fit(
        make_recipe(**{**RECIPE, **again}, seed=seed),
        runs / f"longer-{seed}",
        root=data,
        begin_with=dense.model_file,
        label="longer",
    )
    pruned = prune_run(
        dense.folder,
        runs / f"pruned-{seed}",
        to=SPARSITY,
        epochs=EPOCHS,
        root=Path(data),
        fields={"prune_unit": "type", "prune_ramp": RAMP, "learning_rate": LEARNING_RATE},
    )
    return dense, longer, pruned


def write(dense: Run, longer: Run, pruned: Run, small: dict[str, Any]) -> None:
    """The record, and whether the bar is met."""
    before, after = small["before"], small["after"]
    best = max(dense.result()["test_accuracy"], longer.result()["test_accuracy"])
    found = {
        "times_faster": round(before["ms_an_image"] / after["ms_an_image"], 2),
        "times_faster_alone": round(before["ms_alone"] / after["ms_alone"], 2),
        "times_smaller": round(before["file_bytes"] / after["file_bytes"], 2),
        "points_lost": round(100 * (best - after["accuracy"]), 2),
    }
    record = {
        "what": "types of DR-CapsNet pruned and taken out; points are lost to the better of the "
        "unpruned network and the same trained for longer",
        "bar": f"{FASTER} times faster in batches of 64, {SMALLER:g} times smaller on disk, at "
        f"most {POINTS} points lost",
        "met": found["times_faster"] >= FASTER
        and found["times_smaller"] >= SMALLER
        and found["points_lost"] <= POINTS,
        "found": found,
        "date": datetime.now(UTC).date().isoformat(),
        "environment": environment(),
        "recipe": RECIPE,
        "pruning": {"prune_to": SPARSITY, "prune_unit": "type", "prune_ramp": RAMP}
        | {"epochs": EPOCHS, "learning_rate": LEARNING_RATE},
        "seed": dense.recipe.seed,
        "test_accuracy": {
            "dense": dense.result()["test_accuracy"],
            "trained_longer": longer.result()["test_accuracy"],
            "pruned": pruned.result()["test_accuracy"],
            "taken_out": after["accuracy"],
        },
        "seconds": {
            name: round(sum(row["seconds"] for row in run.metrics()))
            for name, run in (("dense", dense), ("trained_longer", longer), ("pruned", pruned))
        },
        "taken_out": small,
    }
    write_whole(RECORD, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(record["found"] | {"met": record["met"]}))


if __name__ == "__main__":
    main()
