"""Which networks start to learn from their initial weights: two epochs of 2,000 training images.

python benchmarks/learning.py FOLDER [NETWORK …]

FOLDER holds the four files of MNIST. A network has started to learn when its loss is less than half
of what it was, and it is right two tenths more often than by chance: who only knows how often each
class comes can halve a loss, too. Writes benchmarks/records/learning.json after every run, and goes
on with it: delete it to measure anew.
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
from torch import Tensor, nn

from torchcaps import create_model
from torchcaps.data import Batch, load, sign_set
from torchcaps.train import Recipe, make_recipe
from torchcaps.train.environment import environment
from torchcaps.train.loss import loss_parts
from torchcaps.train.run import write_whole

RECORD = Path(__file__).parent / "records" / "learning.json"
IMAGES, EPOCHS, SEED = 2_000, 2, 0


@dataclass(frozen=True)
class Trial:
    """A network, and how it is trained."""

    network: str
    options: dict[str, Any] = field(default_factory=dict)
    batch: int = 32
    rate: float = 1e-3
    loss: str = "auto"
    data: str = "mnist"
    # Zeros around the digits of 28×28 pixels: some trunks need larger images.
    padding: int = 0

    def recipe(self) -> Recipe:
        return make_recipe(
            model=self.network,
            options=self.options,
            data=self.data,
            loss=self.loss,
            batch_size=self.batch,
            learning_rate=self.rate,
        )


TRIALS = [
    *(
        Trial(name, batch=25)
        for name in (
            "efficient_capsnet",
            "rem_eff_mnist",
            "rem_eff_norb",
            "gamma_capsnet",
            "rem_gamma",
        )
    ),
    Trial("rem_effconv", batch=25, padding=6),
    *(
        Trial(f"tsai_inverted_{name}")
        for name in ("simple_c10", "simple_c10_d36", "simple_c10_d64", "simple_c100")
    ),
    Trial("tsai_inverted_resnet_c10"),
    Trial("tsai_inverted_resnet_c100"),
    Trial("tsai_dmm_matrix"),
    Trial("tsai_dmm_vector", rate=3e-4),
    *(Trial("peer_deep_em", {"n_layers": n, "bias": True}, batch=10, rate=2e-3) for n in (5, 9)),
    *(
        # Three iterations are one too many.
        Trial("peer_deep_em", {"n_layers": n, "bias": True, "iterations": 3}, batch=10, rate=rate)
        for n, rate in ((5, 2e-3), (5, 5e-3), (9, 2e-3))
    ),
    # Where others start it.
    Trial(
        "peer_deep_em",
        {"n_layers": 5, "bias": True, "weight_std": 0.1, "lambda_": 0.01, "iterations": 3},
        batch=10,
        rate=2e-3,
    ),
    *(Trial("peer_deep_dynamic", {"n_layers": n, "bias": "added"}, batch=10) for n in (5, 9)),
    *(
        Trial(name, {"bias": bias}, batch=10, rate=1e-2, data="sign")
        for name, bias in (
            ("peer_sign_dynamic", "none"),
            ("peer_sign_dynamic", "added"),
            ("peer_sign_em", False),
            ("peer_sign_em", True),
        )
    ),
    Trial("matrix_capsnet", rate=3e-3, loss="spread"),
    # Normalised behind its stem, two iterations, a constant λ.
    Trial("matrix_capsnet_mnist", rate=1e-2, loss="spread"),
    Trial("tsai_em_simple_c10", rate=1e-2, loss="spread"),
]


def digits(root: str | Path) -> Batch:
    data = load("mnist", split="train", root=root)
    return data.batch(torch.arange(IMAGES))


def signs() -> Batch:
    data = sign_set("grid")
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(SEED))
    return data.batch(order[:IMAGES])


def parts_of(data: Batch, order: Tensor, size: int) -> Iterator[Batch]:
    for index in order.split(size):
        yield Batch(data.pixels[index], data.labels[index])


def learn(trial: Trial, data: Batch) -> Iterator[tuple[float, float]]:
    """Mean loss and share of right images: before the first step, then after each epoch."""
    pad = (trial.padding,) * 4
    data = Batch(nn.functional.pad(data.pixels, pad), data.labels)
    n_classes = int(data.labels.max()) + 1
    torch.manual_seed(SEED)
    image = tuple(data.pixels.shape[1:])
    model = create_model(trial.network, image=image, n_classes=n_classes, **trial.options)
    optimiser = torch.optim.Adam(model.parameters(), trial.rate)
    recipe = trial.recipe()
    in_order = torch.arange(len(data.labels))

    def loss_of(batch: Batch) -> tuple[Tensor, Tensor]:
        out = model(batch.pixels, batch.labels)
        return sum(loss_parts(recipe, out, batch, step=0).values()), out.scores

    def of_all() -> tuple[float, float]:
        total = right = 0.0
        with torch.no_grad():
            for batch in parts_of(data, in_order, 100):
                loss, scores = loss_of(batch)
                total += float(loss) * len(batch.labels)
                right += int((scores.argmax(-1) == batch.labels).sum())
        return total / len(in_order), right / len(in_order)

    yield of_all()
    for _ in range(EPOCHS):
        for batch in parts_of(data, torch.randperm(len(in_order)), trial.batch):
            loss, _ = loss_of(batch)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        yield of_all()


def has_learnt(found: list[tuple[float, float]], n_classes: int) -> bool:
    (start, _), (end, right) = found[0], found[-1]
    return end < start / 2 and right > 1 / n_classes + 0.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", help="the folder that holds the four files of MNIST")
    parser.add_argument("only", nargs="*", help="networks; all of them by default")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    data = {"mnist": digits(asked.root), "sign": signs()}
    runs = json.loads(RECORD.read_text())["runs"] if RECORD.is_file() else []
    for trial in TRIALS:
        described = asdict(trial)
        if asked.only and trial.network not in asked.only:
            continue
        if any(described.items() <= done.items() for done in runs):
            continue
        started = time.process_time()
        found = list(learn(trial, data[trial.data]))
        n_classes = int(data[trial.data].labels.max()) + 1
        runs.append(
            described
            | {
                "loss_of_start": [round(loss / found[0][0], 4) for loss, _ in found],
                "right": [round(right, 4) for _, right in found],
                "learnt": has_learnt(found, n_classes),
                "cpu_seconds": round(time.process_time() - started, 1),
            }
        )
        print(json.dumps(runs[-1]), flush=True)
        write(runs)


def write(runs: list[dict[str, Any]]) -> None:
    order = [asdict(trial) for trial in TRIALS]
    runs.sort(key=lambda run: next(i for i, t in enumerate(order) if t.items() <= run.items()))
    record = {
        "what": f"loss as a share of its start and accuracy on the same {IMAGES} training images, "
        f"before training and after each of {EPOCHS} epochs; Adam, seed {SEED}",
        "bar": "a network has learnt that has less than half of its loss, and is right two tenths "
        "more often than by chance",
        "date": datetime.now(UTC).date().isoformat(),
        "environment": environment(),
        "runs": runs,
    }
    write_whole(RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
