"""What may raise the fidelity of trees: knobs of the data, initial scale, more training.

python benchmarks/part_whole_tries.py [--seeds 3] [--tries "dynamic, 8 epochs" …]

Each try is a run of `part_whole_trees` with one thing changed; "supervised" is taught the parts, an
upper bound. Writes benchmarks/records/part_whole_tries.json after every run, and goes on with the
next: delete a run to measure it anew.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import part_whole_trees as trees
import torch

from torchcaps.data import part_whole
from torchcaps.train.environment import environment
from torchcaps.train.run import write_whole

# By name: what is run, options of its network, knobs of the images, epochs.
TRIES: dict[str, tuple[str, dict[str, Any], dict[str, Any], int]] = {
    "dynamic, balanced": ("dynamic", {"init": "balanced"}, {}, 4),
    "dynamic, 3 to 4 strays": ("dynamic", {}, {"clutter": (3, 4)}, 4),
    "supervised, 3 to 4 strays": ("supervised", {}, {"clutter": (3, 4)}, 4),
    "em, 3 to 4 strays": ("em", {}, {"clutter": (3, 4)}, 4),
    "dynamic, 8 epochs": ("dynamic", {}, {}, 8),
    "dynamic, no rotation, no jitter": ("dynamic", {}, {"rotation": 0.0, "jitter": 0.0}, 4),
    "em, weights of 1": ("em", {"weight_std": 1.0}, {}, 4),
    "dynamic, weights of 0.3": ("dynamic", {"weight_std": 0.3}, {}, 4),
}


RECORD = Path(__file__).parent / "records" / "part_whole_tries.json"


def tried(seed: int, kind: str, options: dict[str, Any], knobs: dict[str, Any], epochs: int) -> Any:
    """The numbers of one try."""
    usual = trees.ROUTINGS[kind]
    spec = dataclasses.replace(trees.SPEC, **knobs)
    trained, test = (
        part_whole(split, count, spec=spec)
        for split, count in (("train", trees.TRAINED), ("test", trees.JUDGED))
    )
    trees.ROUTINGS[kind] = {**usual, **options}
    try:
        return trees.run(kind, seed, trained=trained, test=test, epochs=epochs)
    finally:
        trees.ROUTINGS[kind] = usual


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--tries", nargs="+", choices=TRIES, default=list(TRIES))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    began = environment()
    runs: list[dict[str, Any]] = json.loads(RECORD.read_text()) if RECORD.is_file() else []
    for name in asked.tries:
        for seed in range(asked.seeds):
            if any((run["try"], run["seed"]) == (name, seed) for run in runs):
                continue
            found = tried(seed, *TRIES[name])
            primary = found["fidelity"]["primary"]
            print(name, seed, *(f"{key} {primary[key]}" for key in ("edges", "undiscerning")))
            runs.append({"try": name, **found, "environment": began})
            write_whole(RECORD, json.dumps(runs, indent=1) + "\n")


if __name__ == "__main__":
    main()
