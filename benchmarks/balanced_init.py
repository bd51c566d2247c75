"""Which initial scale lets ten capsule layers learn MNIST, and how fast.

python benchmarks/balanced_init.py FOLDER

FOLDER holds the four files of MNIST. Nine routed layers without bias, 16 capsules × 8 as in
mitterreiter_5x16, on digits halved to 14×14 pixels. Writes benchmarks/records/balanced_init.json
after every run, and goes on with it: delete it to measure anew.
"""

import argparse
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import Tensor, nn

from torchcaps.data import load
from torchcaps.layers import (
    DenseCapsules,
    PrimaryCapsules,
    efficient_backbone,
    feature_shape,
    make_routing,
)
from torchcaps.models.initialise import balance_network
from torchcaps.models.network import CapsuleNetwork
from torchcaps.ops import margin_loss
from torchcaps.ops.squashing import Squash
from torchcaps.train.environment import environment

RECORD = Path(__file__).parent / "records" / "balanced_init.json"
IMAGE = (1, 14, 14)
TARGETS = (0.2, 0.25, 0.3, 0.4, 0.55)
# The customary 0.1 of capsule layers, and larger ones; mitterreiter_5x16 starts with 1.
DEVIATIONS = (0.1, 0.7, 1.0)
TRAINED, HELD_OUT, EPOCHS, BATCH = 2_000, 1_000, 3, 32
BALANCED, FIXED = "target", "weight_std"
# Routing, squash, how weights begin: balanced to a target, or with one deviation in all layers;
# seed. The twins of mitterreiter_5x16 with three seeds, the older squash with one.
RUNS: list[tuple[str, Squash, str, float, int]] = [
    *(("dynamic", "exp", BALANCED, target, seed) for seed in range(3) for target in TARGETS),
    *(("dynamic", "exp", FIXED, std, seed) for seed in range(3) for std in DEVIATIONS),
    *(("uniform", "exp", BALANCED, target, seed) for seed in range(3) for target in (0.3, 0.4)),
    *(("dynamic", "hinton", BALANCED, target, 0) for target in (0.3, 0.4, 0.5, 0.6)),
    *(("uniform", "hinton", BALANCED, target, 0) for target in (0.3, 0.4, 0.5, 0.6)),
]


def ten_layers(routing: str, squash: Squash, weight_std: float) -> CapsuleNetwork:
    backbone = efficient_backbone(IMAGE[0])
    channels, height, width = feature_shape(backbone, IMAGE)
    whole_map = nn.Conv2d(channels, channels, (height, width), groups=channels)
    sizes = {f"hidden_{depth}": 16 for depth in range(2, 10)} | {"classes": 10}
    layers = {
        name: DenseCapsules(
            n_in=16,
            d_in=8,
            n_out=n_out,
            d_out=8,
            routing=make_routing(routing, iterations=3, prior="learned", squash=squash),
            weight_std=weight_std,
        )
        for name, n_out in sizes.items()
    }
    return CapsuleNetwork(
        image=IMAGE,
        backbone=backbone,
        primary=PrimaryCapsules(whole_map, d_out=8, squash=squash),
        primary_grid=(1, 1, 16),
        layers=layers,
    )


def learn(
    images: Tensor,
    labels: Tensor,
    *,
    routing: str,
    squash: Squash,
    seed: int,
    target: float | None = None,
    weight_std: float = 0.1,
) -> dict[str, list[float]]:
    """Mean lengths of the layers at the start on held-out images, the accuracy on them each epoch.

    With a target the layers are balanced, and the deviation does not matter.
    """
    held, trained = torch.arange(len(images)).split((HELD_OUT, len(images) - HELD_OUT))
    torch.manual_seed(seed)
    model = ten_layers(routing, squash, weight_std)
    if target is not None:
        balance_network(model, target=target)
    with torch.no_grad():
        trace = model(images[held[:64]], keep="last").trace
    lengths = [float(layer.routed.parents.pose.norm(dim=-1).mean()) for layer in trace]
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    accuracy = []
    for _ in range(EPOCHS):
        model.train()
        for batch in trained[torch.randperm(len(trained))].split(BATCH):
            loss = margin_loss(model(images[batch]).scores, labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        model.eval()
        with torch.no_grad():
            right = model(images[held]).scores.argmax(-1) == labels[held]
        accuracy.append(round(float(right.float().mean()), 3))
    return {"lengths": [round(length, 3) for length in lengths], "accuracy": accuracy}


def digits(root: str | Path) -> tuple[Tensor, Tensor]:
    """Random images out of the training ones, halved; those to hold out come first."""
    whole = load("mnist", split="train", root=root)
    index = torch.randperm(len(whole), generator=torch.Generator().manual_seed(0))
    index = index[: HELD_OUT + TRAINED]
    return nn.functional.avg_pool2d(whole.pixels(index), 2), whole.labels[index]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", help="the folder that holds the four files of MNIST")
    images, labels = digits(parser.parse_args().root)
    torch.set_num_threads(1)
    runs: list[Mapping[str, object]] = []
    if RECORD.is_file():
        runs = json.loads(RECORD.read_text())["runs"]
    for routing, squash, how, value, seed in RUNS:
        run = {"routing": routing, "squash": squash, how: value, "seed": seed}
        if any(run.items() <= done.items() for done in runs):
            continue
        started = time.process_time()
        start = {how: value}
        learned = learn(images, labels, routing=routing, squash=squash, seed=seed, **start)
        seconds = round(time.process_time() - started, 1)
        runs.append(run | learned | {"cpu_seconds": seconds})
        print(json.dumps(runs[-1]), flush=True)
        write(runs)


def write(runs: list[Mapping[str, object]]) -> None:
    record = {
        "what": f"ten capsule layers (nine routed, 16 × 8, learned priors, no bias, 3 iterations) "
        f"on {TRAINED} MNIST digits of 14×14 pixels, Adam 1e-3, batches of {BATCH}: "
        f"mean length of each routed layer at the start, accuracy on {HELD_OUT} held-out digits "
        f"after each of {EPOCHS} epochs",
        "bar": "with exp squash all learn that are balanced to a target; "
        "with W ~ N(0, 0.1²) in every layer none does",
        "date": datetime.now(UTC).date().isoformat(),
        "environment": environment(),
        "runs": runs,
    }
    RECORD.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
