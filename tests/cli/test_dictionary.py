"""`torchcaps dictionary`: images by the tree that they share."""

import json
import math
from collections import Counter

import pytest
import torch

from cli.command_line import assert_one_sentence, tiny, well
from laid_runs import ReadOff
from torchcaps import load, save
from torchcaps.analysis import quantise
from torchcaps.data import SOURCES, ImageSet
from torchcaps.models.own import CLASSES
from torchcaps.tasks.dictionary import ClassEntries, Dictionary


def test_the_groups_are_those_of_brute_force(run_folder, call):
    done = well(call("dictionary", run_folder, "--levels", "6", "--json"))
    found = json.loads(done.out)
    model = load(run_folder / "model.safetensors")
    images = tiny("test", None)
    keys, right = Counter(), 0
    trees: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for place in range(len(images)):
        batch = images.batch(torch.tensor([place]))
        with torch.no_grad():
            out = model(batch.pixels, keep="last", couple=lambda c: quantise(c, levels=6))
        label = int(out.scores.argmax())
        coupling = out.trace[-1].routed.steps[-1].coupling[0, :, label]
        levels = tuple(round(5 * float(c)) for c in coupling)
        trees.setdefault((label, levels), []).append(place)
        right += label == int(batch.labels)
    expected = Counter((label, tuple(places)) for (label, _), places in trees.items())
    for label, each in enumerate(found["classes"]):
        for entry in each["entries"]:
            keys[label, tuple(entry["images"])] += 1
    assert keys == expected
    assert found["accuracy"] == pytest.approx(right / 12)
    entropies, bounds = [], []
    for each in found["classes"]:
        counts = [len(entry["images"]) for entry in each["entries"]]
        entropies.append(sum(n * math.log2(sum(counts) / n) for n in counts) / max(sum(counts), 1))
        bounds.append(math.log2(max(sum(counts), 1)))
    assert found["entropy"] == pytest.approx(sum(entropies) / 10)
    assert found["bound"] == pytest.approx(sum(bounds) / 10)
    assert found["levels"] == [6] * 4


def test_a_long_name_stands_apart_from_its_count():
    """It read "Ankle boot2 trees of 3 images"."""
    classes = tuple(ClassEntries(name, 3, 0.9, ()) for name in ("Ankle boot", "Bag"))
    found = Dictionary("fashion-mnist", "test", (11,), None, 6, 0.5, 0.5, classes)
    assert found.text().splitlines()[-2:] == [
        "Ankle boot  0 trees of 3 images, 0.90 bit",
        "Bag         0 trees of 3 images, 0.90 bit",
    ]


def test_levels_are_chosen_on_validation_images(run_folder, call, tmp_path):
    picture = tmp_path / "trees.svg"
    done = well(call("dictionary", run_folder, "--each", "--picture", picture))
    first, second, *rest = done.out.splitlines()
    assert first.startswith("levels    ")
    assert "bit, mean of the classes; " in "".join(rest)
    assert "if every image had a tree of its own" in "".join(rest)
    assert "validation accuracy" in first
    assert second.endswith("quantised, on 12 test images of part-whole")
    # Entropy, and a line a class.
    assert len(rest) == 11
    assert picture.read_text().startswith("<?xml")
    done = call("dictionary", run_folder, "--split", "validation", "--json")
    assert json.loads(done.out)["images"] == 4


@pytest.mark.parametrize("each", [[], ["--each"]])
def test_levels_are_never_chosen_on_test_images(run_folder, call, monkeypatch, each):
    """Of test images that are all right, and then all wrong, the same levels come for the same
    reasons."""
    test = tiny("test", None)
    with torch.no_grad():
        said = load(run_folder / "model.safetensors")(test.batch(torch.arange(12)).pixels).scores
    chosen = []
    for away in (0, 1):
        labels = (said.argmax(-1) + away) % len(test.class_names)
        other = ImageSet("part-whole", test.images, labels, test.class_names)
        both = {"train": tiny("train", None), "test": other}
        monkeypatch.setitem(SOURCES, "tiny", lambda split, root, both=both: both[split])
        found = json.loads(call("dictionary", run_folder, *each, "--json").out)
        assert found["accuracy_before"] == 1 - away
        chosen.append(found["chosen"])
    assert chosen[0] == chosen[1]
    shown = call("eval", run_folder, "--split", "validation", "--json")
    assert chosen[0]["plain"] == json.loads(shown.out)["accuracy"]


def test_parents_that_are_no_classes_have_no_dictionary(call, tmp_path, monkeypatch):
    """The couplings to parent 3 were those of class 3."""
    monkeypatch.setitem(CLASSES, f"{ReadOff.__module__}.ReadOff", ReadOff)
    save(ReadOff(), tmp_path / "mine.safetensors")
    words = ["dictionary", tmp_path / "mine.safetensors", "--data", "tiny", "--levels", "11"]
    assert_one_sentence(call(*words), "but parts has 16 parents, and 10 classes are scored by")
