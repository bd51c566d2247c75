"""Train a network of the zoo by its recipe, and put it into the package with its card.

python benchmarks/zoo.py efficient_capsnet.mnist --root data

The recipe is src/torchcaps/zoo/NAME.toml. The same line goes on with a run that was stopped; a run
that is finished is taken as it is. Writes NAME.safetensors and NAME.json beside the recipe, and the
table of docs/zoo.md; of the card, "what" and "limits" are written by hand and stay. Weights are
kept in half precision where that moves no score by more than 0.001. Without a name it writes the
table alone, and with --root the test images of zoo/images/, which the explorer shows.
"""

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from torchcaps import TorchcapsError, data, load
from torchcaps._digests import digest_of
from torchcaps._json import read_json
from torchcaps._paths import write_whole
from torchcaps._zoo import FOLDER, PREFIX, zoo_card, zoo_names
from torchcaps.data import Images
from torchcaps.data.registry import PUBLISHED
from torchcaps.models.files.saving import content_of
from torchcaps.tasks import evaluate, evaluate_file
from torchcaps.tasks.trained import open_trained
from torchcaps.train import Run, fit, make_recipe

PAGE = Path(__file__).parents[1] / "docs" / "zoo.md"
TABLE = "<!-- table: python benchmarks/zoo.py -->\n", "<!-- end -->\n"
# The most that half precision may move a score.
MOST_ROUNDING = 1e-3
MOST_BYTES = 2_000_000
MADE = "drawn by torchcaps itself, Apache-2.0"
MEASURES = ("activity", "dynamics")
# Sets whose licence allows it: test images of them come with the package.
SHARED = ("mnist", "fashion-mnist")


def train(name: str, root: Path | None, runs: Path) -> Run:
    card = FOLDER / f"{name}.json"
    if not card.is_file():
        raise TorchcapsError(
            f'a new network needs two sentences first: write {card} as {{"what": "…", "limits": '
            f'"…"}}, and its recipe beside it.'
        )
    fields = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    return fit(make_recipe(**fields), runs / name, root=root)


def measured(name: str, data: str, root: Path | None) -> dict[str, Any]:
    """What the card says that is found by looking at test images."""
    found = evaluate_file(f"{PREFIX}{name}", data=data, root=root, measurements=MEASURES)
    activity, dynamics = (found.measured[each] for each in MEASURES)
    dyr = {layer.name: layer.dyr for layer in dynamics.layers}
    return {
        "images": len(found.right),
        "right": int(found.right.sum()),
        "accuracy": found.accuracy,
        "interval": [round(end, 4) for end in found.interval],
        "to_beat": found.commonest.share,
        "loss": round(found.loss, 4),
        "layers": {
            layer.name: {"capsules": layer.n, "dead": layer.cds}
            | ({"dyr": _rounded(dyr[layer.name])} if layer.name in dyr else {})
            for layer in activity.layers
        },
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def put(name: str, run: Run, root: Path | None) -> None:
    """Write the weights of a finished run, and the card."""
    weights, trained = FOLDER / f"{name}.safetensors", open_trained(run.folder)
    network, test, recipe, about = trained.model, trained.images("test"), run.recipe, run.about()
    said = read_json(weights.with_suffix(".json"))
    rounding = _keep(network, weights, test)
    if weights.stat().st_size > MOST_BYTES:
        raise TorchcapsError(f"{name} has {weights.stat().st_size:,} bytes, over {MOST_BYTES:,}.")
    kernels = torch.cat([each.flatten() for each in network.parameters() if each.ndim > 1])
    card = {
        "what": said["what"],
        "model": recipe.model,
        "pretrained": name.partition(".")[2],
        "parameters": sum(each.numel() for each in network.parameters()),
        "zeros": round(float((kernels == 0).double().mean()), 4),
        "bytes": weights.stat().st_size,
        "sha256": digest_of(weights),
        "data": recipe.data,
        "licence": PUBLISHED[recipe.data].terms if recipe.data in PUBLISHED else MADE,
        "class_names": list(test.class_names),
        "seeds": [recipe.seed],
        "recipe": recipe.digest(),
        "trained_with": {each: about[each] for each in ("torchcaps", "commit", "torch", "threads")},
        **measured(name, recipe.data, root),
        "rounding": float(f"{rounding:.2g}"),
        "limits": said["limits"],
    }
    text = json.dumps(card, indent=1, ensure_ascii=False, allow_nan=False)
    write_whole(weights.with_suffix(".json"), text + "\n")


def _keep(network: nn.Module, weights: Path, test: Images) -> float:
    """Write them; by how much rounding moves a score on test images."""
    weights.write_bytes(content_of(network, half=True))
    change = evaluate(network, test).scores - evaluate(load(weights), test).scores
    if (rounding := float(change.abs().max())) <= MOST_ROUNDING:
        return rounding
    weights.write_bytes(content_of(network))
    return 0.0


def table() -> str:
    """The table of docs/zoo.md."""
    heads = (
        *("network", "data, its licence", "accuracy (95 % interval)"),
        *("dyr, from below", "dead capsules", "parameters", "kB"),
    )
    rows = [heads, ("---",) * len(heads)]
    for name in zoo_names():
        card = zoo_card(FOLDER / f"{name}.safetensors")
        layers = card["layers"].values()
        dyr = (each["dyr"] for each in layers if "dyr" in each)
        dead, capsules = (sum(each[what] for each in layers) for what in ("dead", "capsules"))
        low, high = card["interval"]
        row = (
            f"`{name}`",
            f"{card['data']}: {card['licence']}",
            f"{card['accuracy']:.2%} ({low:.2%} to {high:.2%})",
            ", ".join("–" if each is None else f"{each:.3f}" for each in dyr) or "–",
            f"{dead} of {capsules}",
            f"{card['parameters']:,}",
            f"{card['bytes'] / 1e3:,.0f}",
        )
        rows.append(row)
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def shared(name: str, root: Path) -> dict[str, np.ndarray]:
    """Test images of a set, drawn at random, every class with its share."""
    test = data.load(name, split="test", root=root)
    few = test.batch(data.sample_of(test, 64))
    return {"images": (few.pixels * 255).byte().numpy(), "labels": few.labels.byte().numpy()}


def write_table() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(TABLE[0])
    after = rest.partition(TABLE[1])[2]
    PAGE.write_text(before + TABLE[0] + table() + TABLE[1] + after, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="MODEL.TAG, several are made in turn")
    parser.add_argument("--root", type=Path, help="folder of data sets that are files")
    parser.add_argument("--runs", type=Path, default=Path("runs/zoo"), help="folder of the runs")
    told = parser.parse_args()
    for each in told.names:
        put(each, train(each, told.root, told.runs), told.root)
    if told.root and not told.names:
        for each in SHARED:
            np.savez_compressed(FOLDER / "images" / f"{each}.npz", **shared(each, told.root))
    write_table()
