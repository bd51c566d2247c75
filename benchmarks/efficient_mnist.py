"""efficient_capsnet on MNIST beside a ConvNet of its size: one recipe, three seeds, fixed epochs.

python benchmarks/efficient_mnist.py DATA RUNS

First each network's learning rate is chosen from the same three, by the validation accuracy of a
short run with a seed of its own. DATA holds the four files of MNIST, RUNS gets a run folder for
each network and seed. Stopped, the same command goes on. Writes
benchmarks/records/efficient_mnist.json after every run.
"""

import argparse
import json
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torchcaps.train import Run, fit, make_recipe
from torchcaps.train.run import environment, write_whole

RECORD = Path(__file__).parent / "records" / "efficient_mnist.json"
# The same for both networks.
RECIPE: dict[str, Any] = {
    "data": "mnist",
    "augment": "affine",
    "epochs": 12,
    "batch_size": 64,
    "schedule": "cosine",
    "precision": "bfloat16",
    "channels_last": True,
}
# Tried with few epochs; a tie goes to the first.
RATES = (1e-3, 2e-3, 4e-3)
TUNING = {"epochs": 2, "seed": 100}
NETWORKS: dict[str, dict[str, Any]] = {
    "efficient_capsnet": {"decoder": False},
    "efficient_convnet": {},
}
SEEDS = (0, 1, 2)
# 97.5 % of Student's t with two degrees of freedom.
T_OF_THREE = 4.302653


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="the folder that holds the four files of MNIST")
    parser.add_argument("runs", type=Path, help="a folder for the runs")
    asked = parser.parse_args()
    runs = []
    tuning: dict[str, dict[str, float]] = {}
    for name, options in NETWORKS.items():

        def trained(label: str, name: str = name, options: Any = options, **fields: Any) -> Run:
            recipe = make_recipe(model=name, options=options, **{**RECIPE, **fields})
            return fit(recipe, asked.runs / label, root=asked.data, label=label)

        tuning[name] = {}
        for rate in RATES:
            run = trained(f"{name}-tuning-{rate:g}", learning_rate=rate, **TUNING)
            tuning[name][f"{rate:g}"] = run.metrics()[-1]["validation_accuracy"]
        print(name, tuning[name], flush=True)
        best = max(RATES, key=lambda rate: tuning[name][f"{rate:g}"])
        for seed in SEEDS:
            runs.append(row(trained(f"{name}-{seed}", learning_rate=best, seed=seed)))
            print(json.dumps(runs[-1]), flush=True)
            write(runs, tuning)


def row(run: Run) -> dict[str, Any]:
    result, epochs = run.result(), run.metrics()
    return {
        "model": run.recipe.model,
        "seed": run.recipe.seed,
        "learning_rate": run.recipe.learning_rate,
        "test_accuracy": result["test_accuracy"],
        "validation_accuracy": [round(each["validation_accuracy"], 5) for each in epochs],
        "seconds": round(sum(each["seconds"] for each in epochs), 1),
        "recipe": run.recipe.digest(),
        "digests": result["digests"],
    }


def write(runs: list[dict[str, Any]], tuning: dict[str, dict[str, float]]) -> None:
    summary = {}
    for name in NETWORKS:
        values = [run["test_accuracy"] for run in runs if run["model"] == name]
        summary[name] = {"mean": statistics.fmean(values), "lowest": min(values)} if values else {}
        if len(values) == 3:
            half = T_OF_THREE * statistics.stdev(values) / 3**0.5
            summary[name]["half_of_95_percent_interval"] = half
    record = {
        "what": "test accuracy on MNIST after the last epoch; validation images are training ones",
        "bar": "efficient_capsnet: mean at least 0.996, none below 0.995",
        "date": datetime.now(UTC).date().isoformat(),
        "environment": environment(),
        "recipe": RECIPE,
        "networks": NETWORKS,
        "tuning": {"recipe": TUNING, "validation_accuracy": tuning},
        "summary": summary,
        "runs": runs,
    }
    write_whole(RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
