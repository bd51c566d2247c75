"""Does training in bfloat16 cost accuracy? efficient_capsnet on MNIST, three seeds, both ways.

python benchmarks/half_precision.py DATA RUNS

A seed draws the same weights, batches and shifts for both precisions, so differences are taken seed
by seed. DATA holds the four files of MNIST, RUNS gets a run folder for each. Stopped, the same
command goes on. Writes benchmarks/records/half_precision.json.
"""

import argparse
import json
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torchcaps.train import Run, fit, make_recipe
from torchcaps.train.environment import environment
from torchcaps.train.run import write_whole

RECORD = Path(__file__).parent / "records" / "half_precision.json"
RECIPE: dict[str, Any] = {
    "model": "efficient_capsnet",
    "options": {"decoder": False},
    "data": "mnist",
    "augment": "shift2",
    "epochs": 2,
    "batch_size": 128,
    "learning_rate": 2e-3,
    "schedule": "cosine",
    "channels_last": True,
}
PRECISIONS = ("float32", "bfloat16")
SEEDS = (0, 1, 2)
# 97.5 % of Student's t with two degrees of freedom.
T_OF_THREE = 4.302653


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="the folder that holds the four files of MNIST")
    parser.add_argument("runs", type=Path, help="a folder for the runs")
    asked = parser.parse_args()
    runs = []
    for seed in SEEDS:
        for precision in PRECISIONS:
            recipe = make_recipe(**RECIPE, seed=seed, precision=precision)
            label = f"{precision}-{seed}"
            runs.append(row(fit(recipe, asked.runs / label, root=asked.data, label=label)))
            print(json.dumps(runs[-1]), flush=True)
    differences = [half["test_accuracy"] - full["test_accuracy"] for full, half in pairs(runs)]
    record = {
        "what": "test accuracy on MNIST after the last epoch, bfloat16 against float32",
        "date": datetime.now(UTC).date().isoformat(),
        "environment": environment(),
        "recipe": RECIPE,
        "runs": runs,
        "bfloat16_minus_float32": {
            "each": [round(each, 5) for each in differences],
            "mean": statistics.fmean(differences),
            "half_of_95_percent_interval": T_OF_THREE * statistics.stdev(differences) / 3**0.5,
        },
    }
    write_whole(RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    print(json.dumps(record["bfloat16_minus_float32"]))


def row(run: Run) -> dict[str, Any]:
    return {
        "seed": run.recipe.seed,
        "precision": run.recipe.precision,
        "test_accuracy": run.result()["test_accuracy"],
        "validation_accuracy": round(run.metrics()[-1]["validation_accuracy"], 5),
        "seconds": round(sum(each["seconds"] for each in run.metrics()), 1),
        "recipe": run.recipe.digest(),
    }


def pairs(runs: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return list(zip(runs[::2], runs[1::2], strict=True))


if __name__ == "__main__":
    main()
