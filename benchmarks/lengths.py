"""How dyr of [mitterreiter2023], which says how dynamic a routing is, goes with the lengths of
primary capsules: of each network of a folder as it is, and with all lengths set to one, directions
kept.

torchcaps study run mitt2023-q-cifar10-worse-dynamics --reduced --root data --out runs/colour
python benchmarks/lengths.py runs/colour --root data

Prints a line a network and writes benchmarks/records/lengths.json.
"""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from record import write_record

import torchcaps as tc
from torchcaps.analysis import MeasureDynamics
from torchcaps.data import load
from torchcaps.types import Capsules

RECORD = Path(__file__).parent / "records" / "lengths.json"
LENGTHS = (0.4, 0.6, 0.8, 0.95)
# Of the test images of each training set; networks on moved digits are looked at on other ones.
TESTS = {"expanded-mnist": "affnist-style", "cifar10": "cifar10"}
BATCH = 100


def as_long(capsules: Capsules, *, length: float) -> Capsules:
    """The same directions, all of one length."""
    pose = capsules.pose
    return capsules._replace(pose=length * pose / pose.norm(dim=-1, keepdim=True))


@torch.no_grad()
def dynamics(
    model: Any, pixels: torch.Tensor, labels: torch.Tensor, length: float | None = None
) -> dict[str, Any]:
    """The mean length of primary capsules, the dyr of each routing from below, and how many images
    are right, in percent."""
    changes = None if length is None else {"primary": partial(as_long, length=length)}
    measured, means, right = MeasureDynamics(), [], 0
    for batch, truth in zip(pixels.split(BATCH), labels.split(BATCH), strict=True):
        out = model(batch, keep="last", intervene=changes)
        means.append(out.trace[0].children.pose.norm(dim=-1).mean())
        measured.add(out.trace)
        right += int((out.scores.argmax(-1) == truth).sum())
    return {
        "length": float(torch.stack(means).mean()),
        "dyr": [layer.dyr for layer in measured.result().layers],
        "accuracy": 100 * right / len(labels),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--root", default="data")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=RECORD)
    given = parser.parse_args()
    found = []
    for folder in sorted(path.parent for path in given.runs.glob("*/model.safetensors")):
        recipe = json.loads((folder / "recipe.json").read_text())
        if recipe["options"].get("routing", "dynamic") != "dynamic":
            continue
        images = load(TESTS[recipe["data"]], split="test", root=given.root)
        pixels, labels, _ = images.batch(torch.arange(given.images))
        model = tc.load(folder)
        looks = {"as it is": dynamics(model, pixels, labels)}
        looks |= {f"{length:g}": dynamics(model, pixels, labels, length) for length in LENGTHS}
        found.append({"data": recipe["data"], "seed": recipe["seed"], "looks": looks})
        means = {name: sum(each["dyr"]) / len(each["dyr"]) for name, each in looks.items()}
        print(recipe["data"], recipe["seed"], {name: round(x, 3) for name, x in means.items()})
    write_record(given.out, "dyr by the length of primary capsules", networks=found)


if __name__ == "__main__":
    main()
