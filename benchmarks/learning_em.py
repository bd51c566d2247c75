"""How far networks with EM routing learn: accuracy on all test images of MNIST after every epoch.

python benchmarks/learning_em.py FOLDER [NETWORK …]

FOLDER holds the four files of MNIST. Training takes the first images of the training set; nothing
is chosen by the test images within a run. Writes benchmarks/records/learning_em.json after every
epoch, and goes on with the next run: delete a run to measure it anew.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchcaps import create_model
from torchcaps.data import Batch, load
from torchcaps.layers import keep_memory
from torchcaps.train import Recipe, make_recipe
from torchcaps.train.environment import environment
from torchcaps.train.loss import loss_parts
from torchcaps.train.optimiser import make_optimiser, rate_factor
from torchcaps.train.run import write_whole

RECORD = Path(__file__).parent / "records" / "learning_em.json"
# What a course takes from its recipe.
TAKEN = {
    *("batch_size", "epochs", "learning_rate", "loss", "optimiser"),
    *("reconstruction_weight", "schedule", "seed", "spread_steps"),
}


@dataclass(frozen=True)
class Course:
    """A network, its protocol, and how long it is trained."""

    network: str
    protocol: str
    options: dict[str, Any] = field(default_factory=dict)
    images: int = 20_000
    epochs: int = 2
    # Pixels cut off at each side: hardly a digit of MNIST reaches beyond the middle 20×20.
    crop: int = 0
    seed: int = 0

    def recipe(self) -> Recipe:
        return make_recipe(
            protocol=self.protocol,
            model=self.network,
            options=self.options,
            data="mnist",
            epochs=self.epochs,
            seed=self.seed,
        )


SEEDS = (0, 1, 2)
# A narrow trunk: what is asked is whether layers of capsules learn.
DEEP = {"bias": True, "decoder": False, "width": 32}
COURSES = [
    *(
        Course(
            "peer_deep_em", "em_deep_mnist", {"n_layers": n, **DEEP}, epochs=1, crop=4, seed=seed
        )
        for seed in SEEDS
        for n in (9, 7, 5)
    ),
    *(
        Course(
            "matrix_capsnet_mnist",
            "em_matrix_mnist",
            images=60_000,
            epochs=8,
            crop=2,
            seed=seed,
        )
        for seed in SEEDS
    ),
]


def digits(root: str | Path, split: Any) -> Batch:
    data = load("mnist", split=split, root=root)
    return data.batch(torch.arange(len(data)))


def taught(course: Course, train: Batch, test: Batch) -> Iterator[dict[str, float]]:
    """What is measured after each epoch."""
    torch.manual_seed(course.seed)
    train, test = cropped(train, course.crop), cropped(test, course.crop)
    image = tuple(train.pixels.shape[1:])
    model = create_model(course.network, image=image, n_classes=10, **course.options)
    recipe, started, step = course.recipe(), time.process_time(), 0
    optimiser = make_optimiser(recipe, model.parameters())
    steps_an_epoch = course.images // recipe.batch_size
    factor = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda done: rate_factor(recipe, done, steps_an_epoch)
    )
    for epoch in range(1, course.epochs + 1):
        total = 0.0
        for index in torch.randperm(course.images).split(recipe.batch_size)[:steps_an_epoch]:
            batch = Batch(train.pixels[index], train.labels[index])
            out = model(batch.pixels, batch.labels)
            loss = torch.stack(list(loss_parts(recipe, out, batch, step).values())).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            factor.step()
            total, step = total + float(loss.detach()), step + 1
        yield {
            "epoch": epoch,
            "loss": round(total / steps_an_epoch, 4),
            "test_accuracy": accuracy(model, test),
            "cpu_seconds": round(time.process_time() - started, 1),
        }


def cropped(data: Batch, pixels: int) -> Batch:
    return Batch(nn.functional.pad(data.pixels, (-pixels,) * 4), data.labels)


@torch.no_grad()
def accuracy(model: nn.Module, data: Batch) -> float:
    model.eval()
    right = 0
    for index in torch.arange(len(data.labels)).split(100):
        scores = model(data.pixels[index]).scores
        right += int((scores.argmax(-1) == data.labels[index]).sum())
    model.train()
    return right / len(data.labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", help="the folder that holds the four files of MNIST")
    parser.add_argument("only", nargs="*", help="networks; all of them by default")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    train, test = (digits(asked.root, split) for split in ("train", "test"))
    runs = json.loads(RECORD.read_text())["runs"] if RECORD.is_file() else []
    for course in COURSES:
        described = asdict(course)
        if asked.only and course.network not in asked.only:
            continue
        begun = [run for run in runs if described.items() <= run.items()]
        if any(len(run["after"]) == course.epochs for run in begun):
            continue
        run = described | {
            "recipe": course.recipe().model_dump(include=TAKEN),
            "date": datetime.now(UTC).date().isoformat(),
            "environment": environment(),
            "after": [],
        }
        runs = [each for each in runs if each not in begun] + [run]
        for found in taught(course, train, test):
            run["after"].append(found)
            print(json.dumps(described | found), flush=True)
            write(runs)


def write(runs: list[dict[str, Any]]) -> None:
    record = {
        "what": "accuracy on the 10,000 test images after every epoch",
        "runs": runs,
    }
    write_whole(RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
