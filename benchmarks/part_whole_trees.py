"""Which routing finds the true tree of parts and wholes, and which network uses its tree.

python benchmarks/part_whole_trees.py

`mitterreiter_grid` with 16 primary and 16 hidden capsules learns the part-whole set, small and with
mild clutter; then fidelity of both layers, and causal use of all couplings and of every capsule of
these layers, silenced by itself, on images it has not seen. "supervised" is an upper bound: primary
capsule p is taught by a margin loss to be long where part p is. Writes
benchmarks/records/part_whole_trees.json after every run, and goes on with it: delete it to measure
anew.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.analysis import MeasureFidelity, causal_use, measure
from torchcaps.data import ImageSet, PartWholeSpec, part_whole, shown_parts
from torchcaps.models import create_model
from torchcaps.ops import margin_loss
from torchcaps.train.environment import environment

RECORD = Path(__file__).parent / "records" / "part_whole_trees.json"
SPEC = PartWholeSpec(size=24, clutter=(1, 2), occlusion=0.0, noise=0.03, rotation=0.3)
TRAINED, JUDGED, CAUSAL, EPOCHS, BATCH = 3_000, 1_000, 500, 4, 32
# How each routing is told; inverted routing gives no activations, so a head reads its classes.
ROUTINGS: dict[str, dict[str, Any]] = {
    "dynamic": {},
    "uniform": {},
    "em": {"unit_poses": True, "weight_std": 0.3, "lambda_": 0.1, "iterations": 2},
    "inverted": {"head": True, "weight_std": 0.3, "iterations": 2},
    "self_attention": {},
    "supervised": {"routing": "dynamic"},
}


@dataclass
class Shown:
    """A batch whose parts are known."""

    pixels: Tensor
    labels: Tensor
    parts: Tensor  # int [b, parts]


def parts_of(images: ImageSet) -> Tensor:
    """0 where an image lacks a part, 1 where it is a stray, 2 where it is one of the whole."""
    assert images.truth is not None
    return shown_parts(images.truth)


def network(kind: str, n_classes: int) -> nn.Module:
    options = {"routing": kind, **ROUTINGS[kind]}
    torch_options = {"widths": "16,16", "d_pose": 8, "decoder": False, **options}
    return create_model(
        "mitterreiter_grid", image=(1, SPEC.size, SPEC.size), n_classes=n_classes, **torch_options
    )


def learn(kind: str, seed: int, trained: ImageSet, epochs: int) -> nn.Module:
    torch.manual_seed(seed)
    model = network(kind, len(trained.class_names))
    parts = (parts_of(trained) > 0).float()
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    steps = epochs * -(-len(trained) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps)
    supervised = kind == "supervised"
    for _ in range(epochs):
        for index in torch.randperm(len(trained)).split(BATCH):
            pixels, labels = trained.pixels(index), trained.labels[index]
            out = model(pixels, keep="last" if supervised else "none")
            if out.scores_are == "lengths":
                loss = margin_loss(out.scores, labels)
            else:
                loss = nn.functional.cross_entropy(out.scores, labels)
            if supervised:
                length = out.trace[0].children.activation[:, : parts.shape[1]]
                loss = loss + margin_loss(length, parts[index])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return model.eval()


def judged(model: nn.Module, images: ImageSet) -> dict[str, Any]:
    """Accuracy, fidelity of both layers, causal use of couplings and of silenced capsules."""
    parts = parts_of(images)
    batches = (
        Shown(images.pixels(index), images.labels[index], parts[index])
        for index in torch.arange(len(images)).split(200)
    )
    layers = ("primary", "hidden_2")
    kinds = [MeasureFidelity(lambda batch: batch.parts, layer=layer) for layer in layers]
    found = measure(partial(model, keep="last"), batches, kinds)
    few = torch.arange(min(CAUSAL, len(images)))
    pixels, labels = images.pixels(few), images.labels[few]
    use = causal_use(model, pixels, labels, silenced=layers, batch_size=200)
    return {
        "accuracy": round(use.accuracy, 4),
        "fidelity": {each.layer: rounded(asdict(each)) for each in found},
        "causal": [rounded(asdict(row)) for row in use.couplings],
        "silenced": [rounded(asdict(row)) for row in use.capsules],
    }


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    def short(value: Any) -> Any:
        if isinstance(value, float):
            return round(value, 4)
        return [short(each) for each in value] if isinstance(value, tuple | list) else value

    return {name: short(value) for name, value in row.items()}


def run(kind: str, seed: int, *, trained: ImageSet, test: ImageSet, epochs: int) -> dict[str, Any]:
    started = time.process_time()
    model = learn(kind, seed, trained, epochs)
    found = judged(model, test)
    return {
        "kind": kind,
        "seed": seed,
        **found,
        "cpu_seconds": round(time.process_time() - started),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", default=list(ROUTINGS), choices=list(ROUTINGS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    runs: list[dict[str, Any]] = json.loads(RECORD.read_text())["runs"] if RECORD.is_file() else []
    trained, test = part_whole("train", TRAINED, spec=SPEC), part_whole("test", JUDGED, spec=SPEC)
    for seed in range(asked.seeds):
        for kind in asked.kinds:
            if any((done["kind"], done["seed"]) == (kind, seed) for done in runs):
                continue
            runs.append(run(kind, seed, trained=trained, test=test, epochs=EPOCHS))
            last = runs[-1]
            print(kind, seed, last["accuracy"], last["cpu_seconds"], flush=True)
            RECORD.write_text(
                json.dumps(
                    {
                        "command": "python benchmarks/part_whole_trees.py",
                        "made": datetime.now(UTC).isoformat(timespec="seconds"),
                        "environment": environment(),
                        "images": {"trained": TRAINED, "judged": JUDGED, "causal": CAUSAL},
                        "epochs": EPOCHS,
                        "batch": BATCH,
                        "spec": asdict(SPEC),
                        "options": ROUTINGS,
                        "runs": runs,
                    },
                    indent=1,
                )
                + "\n"
            )


if __name__ == "__main__":
    main()
