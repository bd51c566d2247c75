"""What can be taken out of networks of which nothing was pruned as a whole.

python benchmarks/taken_out.py FOLDER --root DATA    # twenty minutes of one core

`dead`: four capsule layers of [peer2022] without bias, first weights from N(0, 1), as
studies/depth-without-bias.toml trains them. They learn MNIST without any pruning, and capsules of
the second hidden layer die. Taken out is what is dead on 1,000 training images; a single dead
parent stays, since one has to stand in for those that go. Seed 1 of that study does not learn.

`magnitude`, `lobster` and `snip`: single weights, seed 0 of `pruned_trees.py --reduced`, whose runs
in FOLDER are taken where they are there. Zero blocks say what was left to take out.

One thread; both networks are timed in turns. FOLDER gets the runs; stopped, the same command goes
on. Writes benchmarks/records/taken_out.json.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from pruned_trees import REDUCED, Cell, network, parser_of
from record import write_record

from torchcaps.tasks import evaluate_file, shrink
from torchcaps.train import Run, fit, make_recipe

RECORD = Path(__file__).parent / "records" / "taken_out.json"
RECIPE: dict[str, Any] = {
    "model": "peer_deep_dynamic",
    "options": {"width": 32, "weight_std": 1.0, "n_layers": 4, "bias": "none"},
    "protocol": "peer",
    "data": "mnist",
    "train_images": 20_000,
    "batch_size": 64,
    "learning_rate": 0.002,
    "schedule": "cosine",
    "epochs": 3,
}
SEEDS = (0, 2)
WAYS = ("magnitude", "lobster", "snip")


def main() -> None:
    asked = parser_of(__doc__).parse_args()
    torch.set_num_threads(1)
    rows = []
    for seed in SEEDS:
        run = fit(make_recipe(**RECIPE, seed=seed), asked.folder / f"dead-{seed}", root=asked.root)
        rows.append(row_of("dead", run, asked.root, dead=True))
    for way in WAYS:
        cell = Cell("mnist", 0, way)
        run = network(asked.folder, REDUCED, cell, asked.root, None)
        rows.append(row_of(way, run, asked.root, dead=False))
    what = "taken out of networks of which nothing was pruned as a whole"
    write_record(RECORD, what, recipe=RECIPE, rows=rows)


def row_of(way: str, run: Run, root: Path | None, *, dead: bool) -> dict[str, Any]:
    """What comes of taking out what nothing reads, and with `dead` dead capsules too."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "small.safetensors"
        small = shrink(run.folder, out, dead=dead, root=root)
    print(f"{way}, seed {run.recipe.seed}\n{small.text()}")
    sparsity = run.result().get("sparsity", {}).get("share", 0.0)
    found = evaluate_file(run.folder, root=root, measurements=("activity",)).measured["activity"]
    on_test_images = {row["name"]: row["cds"] for row in json.loads(found.to_json())["layers"]}
    said = {"way": way, "seed": run.recipe.seed, "sparsity": sparsity}
    said["dead_on_test_images"] = on_test_images
    return said | small.numbers() | {"path": out.name}


if __name__ == "__main__":
    main()
