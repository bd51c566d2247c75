"""Make what ae01d97c/ holds, as the code of that commit did, in the folder it is called in:

    PYTHONPATH=FROZEN/src python make.py

where FROZEN is a checkout of the commit. Nothing of it is made again: later versions must read it
as it is. What whole/ holds beside it, runs that nobody stopped, is in expected.json.
"""

import itertools
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

import torchcaps as tc
from torchcaps.data import ImageSet, from_arrays
from torchcaps.errors import Interrupted
from torchcaps.layers import DynamicRouting
from torchcaps.train import Recipe, Run, fit, make_recipe

SMALL = {"width": 4, "types": 1, "d_primary": 4, "d_class": 4, "decoder": False}
OWN = {"data": "own", "validation_share": 0.25}
# By the name of its folder: the recipe of a run, and after how many updates it was stopped.
RUNS = {
    "adam": (
        {
            "model": "peer_sign_em",
            "data": "sign",
            "options": {"bias": True},
            "train_images": 6000,
            "batch_size": 500,
            "epochs": 3,
            "learning_rate": 0.02,
            "schedule": "exponential",
            "decay": 0.9,
            "decay_every": 5,
            "stop_at": 1.0,
            "stop_every": 7,
        },
        17,
    ),
    "sgd": (
        {
            **OWN,
            "model": "capsnet",
            "options": SMALL,
            "batch_size": 8,
            "accumulate": 2,
            "epochs": 5,
            "optimiser": "sgd",
            "learning_rate": 3.0,
            "momentum": 0.9,
            "weight_decay": 1e-4,
            "schedule": "steps",
            "decay": 0.5,
            "milestones": [2, 4],
            "patience": 3,
            "keep": "best",
            "seed": 1,
        },
        10,
    ),
    "pruned": (
        {
            **OWN,
            "model": "capsnet",
            "options": SMALL,
            "batch_size": 12,
            "epochs": 4,
            "learning_rate": 0.02,
            "prune": "magnitude",
            "prune_to": 0.8,
            "prune_ramp": 3,
            "prune_scope": "layer",
            "standardise": "set",
            "seed": 2,
        },
        9,
    ),
    # Not stopped: it ended by itself, long before its last epoch.
    "early": (
        {
            **OWN,
            "model": "capsnet",
            "options": {**SMALL, "bias": True},
            "batch_size": 12,
            "epochs": 30,
            "learning_rate": 0.1,
            "patience": 1,
            "keep": "best",
            "seed": 3,
        },
        None,
    ),
}
STUDY = """\
model = "peer_sign_em"
data = "sign"
epochs = 2
batch_size = 500
train_images = 3000
learning_rate = 0.05
measure = ["accuracy", "dyr", "accuracy@sign/train"]

[options]
bias = true

[vary]
iterations = [1, 3]
seed = [0, 1]
"""
# Of four cells of twelve updates, the last is stopped in its second epoch.
STUDY_STOPS_AFTER = 3 * 12 + 8


def images(split: str) -> ImageSet:
    """Bright squares in one of four corners, on noise of whole numbers: the same on any machine."""
    count = {"train": 64, "test": 24}[split]
    n = torch.arange(count)[:, None, None] + (1000 if split == "test" else 0)
    y, x = torch.arange(20)[:, None], torch.arange(20)
    noise = (n * n * 7 + y * y * 31 + x * 17 + n * x * y) % 97
    labels = torch.arange(count) % 4
    top, left = (labels // 2 * 9 + 1)[:, None, None], (labels % 2 * 9 + 1)[:, None, None]
    square = (y >= top) & (y < top + 8) & (x >= left) & (x < left + 8)
    return from_arrays((noise + 150 * square).to(torch.uint8), labels, ("a", "b", "c", "d"))


def recipe_of(name: str) -> Recipe:
    return make_recipe(**RUNS[name][0])


def train(recipe: Recipe, folder: Path) -> Run:
    """Train a run, or go on with it."""
    own = (images("train"), images("test")) if recipe.data == "own" else None
    return fit(recipe, folder, own=own)


def networks() -> dict[str, nn.Module]:
    """Saved ones by the name of their files: of a name, of a routing object, and of other code."""
    image, n_classes = (1, 20, 20), 4
    torch.manual_seed(0)
    named = tc.create_model(
        "matrix_capsnet",
        image=image,
        n_classes=n_classes,
        sizes="4-2-2-2",
        norm=True,
        standardise=([0.4], [0.3]),
    )
    next(part for part in named.modules() if isinstance(part, nn.BatchNorm2d)).eps = 1e-3
    routed = tc.create_model(
        "capsnet", image=image, n_classes=n_classes, **SMALL, routing=DynamicRouting(iterations=2)
    )
    other = nn.Sequential(nn.Flatten(), nn.Linear(400, 4))
    return {"named": named.eval(), "routed": routed.eval(), "other": other.eval()}


@contextmanager
def stopped_after(updates: int | None) -> Iterator[None]:
    """Tell this process to stop after so many updates of weights."""
    count = itertools.count(1)

    def tell(*_: object) -> None:
        if next(count) == updates:
            signal.raise_signal(signal.SIGTERM)

    hook = register_optimizer_step_post_hook(tell)
    try:
        yield
    except Interrupted:
        assert updates is not None
    else:
        assert updates is None
    finally:
        hook.remove()


def main() -> None:
    from torchcaps.study.runner import Ledger
    from torchcaps.study.runner.evidence import write_records
    from torchcaps.study.runner.own import read_study
    from torchcaps.study.runner.work import work

    folder, expected = Path(), {}
    sys.argv = ["torchcaps", "study", "run", "small.toml"]
    Path("small.toml").write_text(STUDY)
    study, ledger = read_study("small.toml"), Ledger(folder / "runs")
    for place, stop in ((ledger, STUDY_STOPS_AFTER), (Ledger(folder / "whole"), None)):
        with stopped_after(stop):
            work(study.cells(), place, root=None)
        paths = write_records(study, place, "evidence" if stop else "whole/evidence")
    records = (json.loads(path.read_text()) for path in paths)
    expected["study"] = [
        {each["seed"]: each["values"] for each in record["seeds"]} for record in records
    ]
    sys.argv = ["make.py"]
    for name, (_, stop) in RUNS.items():
        with stopped_after(stop):
            train(recipe_of(name), folder / name)
        whole = train(recipe_of(name), folder / "whole" / name)
        expected[name] = {
            "digest": whole.recipe.digest(),
            "rows": whole.metrics(),
            "result": whole.result(),
        }
    pixels = images("test").batch(slice(0, 4)).pixels
    for name, network in networks().items():
        tc.save(network, f"{name}.safetensors")
        with torch.no_grad():
            out = network(pixels)
        expected[name] = (out if name == "other" else out.scores).tolist()
    Path("expected.json").write_text(json.dumps(expected, indent=1))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
