"""Train, prune, quantise, group, draw: the networks of [renzulli2025] through all of it."""

import json
from functools import cache
from pathlib import Path

import pytest
import torch

from cli.command_line import Call, well
from torchcaps.data import SOURCES, ImageSet, PartWholeSpec, part_whole
from torchcaps.train import Run

pytestmark = pytest.mark.slow


@cache
def large(split: str, root: object) -> ImageSet:
    return part_whole(split, {"train": 40, "test": 12}[split], spec=PartWholeSpec(size=40))


@pytest.fixture(autouse=True)
def _large(monkeypatch):
    monkeypatch.setitem(SOURCES, "large", large)


def asked(call: Call, *words: object) -> dict:
    done = well(call(*words))
    return json.loads(done.out)


def pruned_run(call: Call, folder: Path, name: str, data: str, to: float) -> Path:
    """A network trained for an epoch and pruned in another, by what it says of itself."""
    first, then = folder / "run", folder / "pruned"
    words = ["--model", name, "--data", data, "--epochs", 1, "--batch-size", 20, "--seed", 5]
    asked(call, "train", *words, "--out", first)
    words = ["--to", to, "--epochs", 1, "--set", "prune_ramp=1", "--out", then]
    share = asked(call, "prune", first, *words)["sparsity"]["share"]
    assert share == pytest.approx(to, abs=1e-4)
    return then


def groups(found: dict) -> list[list[list[int]]]:
    """The images of every tree of every class, without the names of the trees."""
    return [sorted(entry["images"] for entry in each["entries"]) for each in found["classes"]]


def trees(call: Call, run: Path, picture: Path, *, layers: int) -> dict:
    """The dictionary at the numbers of levels that validation images choose, as `eval` has it: one
    number for each routed layer where there are several, as in [renzulli2025] B.3."""
    each = ["--each"] if layers > 1 else []
    found = asked(call, "dictionary", run, *each, "--picture", picture, "--json")
    assert len(found["levels"]) == layers
    assert sum(len(group) for of_class in groups(found) for group in of_class) == 12
    assert picture.stat().st_size > 10_000
    levels = ",".join(map(str, found["levels"]))
    quantised = asked(call, "eval", run, "--quantise", levels, "--json")
    assert quantised["accuracy"] == pytest.approx(found["accuracy"])
    return found


@pytest.mark.parametrize(
    ("name", "data", "to", "layers"),
    [
        ("rem_gamma", "tiny", 0.4, 2),
        ("rem_eff_mnist", "tiny", 0.4, 1),
        ("rem_effconv", "large", 0.3, 2),
        ("rem_deepcaps", "tiny", 0.3, 2),
    ],
)
def test_a_network_is_pruned_grouped_and_drawn(name, data, to, layers, call, tmp_path):
    run = pruned_run(call, tmp_path, name, data, to)
    trees(call, run, tmp_path / "trees.svg", layers=layers)
    drawn(call, run, data, tmp_path)


def drawn(call: Call, run: Path, data: str, folder: Path) -> None:
    """A decoder on top of the frozen network: zeros stay, and components change what it draws."""
    before = Run(run).model()
    parts = [name for name, part in before.named_children() if list(part.parameters())]
    words = ["--init-from", run, "--option", "decoder=true", "--data", data, "--epochs", 1]
    words += ["--batch-size", 20, "--out", folder / "drawn"]
    asked(call, "train", *words, *(word for part in parts for word in ("--freeze", part)))
    after = dict(Run(folder / "drawn").model().named_parameters())
    assert all(torch.equal(after[name], weight) for name, weight in before.named_parameters())
    picture = folder / "drawn.png"
    found = asked(call, "perturb", folder / "drawn", "--picture", picture, "--json")
    assert found
    assert picture.stat().st_size > 10_000


def test_zeros_of_deepcaps_are_counted_in_its_classes(call, tmp_path):
    run = pruned_run(call, tmp_path, "rem_deepcaps", "tiny", 0.8)
    found = asked(call, "eval", run, "--measure", "zero-votes", "--json")
    (row,) = found["measured"]["zero-votes"]["layers"]
    assert row["name"] == "classes"
