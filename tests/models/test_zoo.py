"""Trained networks that come with the package: they open, they are small, and their cards hold."""

import importlib
import json
import os
import re
import tomllib
from pathlib import Path

import pytest
import safetensors.torch
import torch

import torchcaps as tc
from torchcaps._digests import digest_of
from torchcaps._zoo import FOLDER, zoo_images
from torchcaps.models.files.saving import content_of
from torchcaps.train import make_recipe

ROOT = Path(__file__).parents[2]
NAMES = tc.list_models(pretrained=True)
CARDS = {name: json.loads((FOLDER / f"{name}.json").read_text("utf-8")) for name in NAMES}
TREE, TWIN = "mitterreiter_5x16.part-whole", "mitterreiter_5x16.part-whole-uniform"
SHARED = ("mnist", "fashion-mnist")


def test_each_has_weights_a_card_and_a_recipe_and_all_are_small():
    ends = {".json", ".safetensors", ".toml"}
    files = {path.name for path in FOLDER.iterdir() if path.is_file()}
    assert files == {n + end for n in NAMES for end in ends}
    sizes = [path.stat().st_size for path in FOLDER.glob("*.safetensors")]
    assert max(sizes) <= 2_000_000
    assert sum(sizes) <= 8_000_000
    assert {TREE, TWIN} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_card_is_that_of_the_file_and_of_the_recipe(name):
    card, weights = CARDS[name], FOLDER / f"{name}.safetensors"
    assert (card["sha256"], card["bytes"]) == (digest_of(weights), weights.stat().st_size)
    recipe = make_recipe(**tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8")))
    assert card["recipe"] == recipe.digest()
    assert (card["model"], card["data"], card["seeds"]) == (
        recipe.model,
        recipe.data,
        [recipe.seed],
    )
    assert name == f"{card['model']}.{card['pretrained']}"
    # By hand: the middle of Wilson's interval is (p + z² / 2n) / (1 + z² / n).
    n, z2 = card["images"], 1.959964**2
    assert card["accuracy"] == card["right"] / n
    middle = (card["accuracy"] + z2 / (2 * n)) / (1 + z2 / n)
    assert sum(card["interval"]) / 2 == pytest.approx(middle, abs=1e-4)
    assert card["rounding"] <= 1e-3
    assert all(card[word] for word in ("what", "limits", "licence", "trained_with"))


@pytest.mark.parametrize("name", NAMES)
def test_each_opens_by_its_names_and_computes_in_single_precision(name):
    card = CARDS[name]
    network = tc.create_model(card["model"], pretrained=card["pretrained"])
    assert not network.training
    assert {each.dtype for each in network.parameters()} == {torch.float32}
    assert sum(each.numel() for each in network.parameters()) == card["parameters"]
    state = tc.load(f"zoo:{name}").state_dict()
    assert all(torch.equal(state[key], value) for key, value in network.state_dict().items())
    images = torch.rand(2, *network.config["image"])
    out = network(images, keep="last")
    assert out.scores.shape == (2, len(card["class_names"]))
    assert {layer.name for layer in out.trace} == {
        layer for layer, row in card["layers"].items() if "dyr" in row
    }


def test_the_twin_never_changes_its_couplings_and_both_answer():
    trees, twins = CARDS[TREE]["layers"], CARDS[TWIN]["layers"]
    assert [row["dyr"] for row in twins.values() if "dyr" in row] == [0.0] * 4
    assert all(row["dyr"] > 0.01 for row in trees.values() if "dyr" in row)
    test = tc.data.part_whole("test", 50).batch(slice(0, 50))
    for name in (TREE, TWIN):
        said = tc.load(f"zoo:{name}")(test.pixels).scores.argmax(1)
        assert (said == test.labels).sum() > 45


def test_half_precision_takes_half_of_the_bytes_and_is_single_again(tmp_path):
    network = tc.create_model("efficient_capsnet", decoder=False).eval()
    file = tmp_path / "half.safetensors"
    file.write_bytes(content_of(network, half=True))
    assert file.stat().st_size < len(content_of(network)) * 0.55
    kept = safetensors.torch.load_file(file)
    assert {each.dtype for each in kept.values() if each.is_floating_point()} == {torch.half}
    found = tc.load(file)
    assert found.config == network.config
    for name, value in network.state_dict().items():
        same = value.half().float() if value.is_floating_point() else value
        assert torch.equal(found.state_dict()[name], same)
    other = tc.load(file, n_classes=3)
    assert {each.dtype for each in other.parameters()} == {torch.float32}
    # Saved again, it is a network like any other.
    tc.save(found, file)
    assert file.read_bytes() == content_of(found)


def test_other_classes_keep_what_fits(caplog):
    network = tc.create_model("mitterreiter_5x16", pretrained="part-whole", n_classes=3)
    assert network(torch.rand(1, 1, 32, 32)).scores.shape == (1, 3)
    whole = tc.load(f"zoo:{TREE}")
    assert torch.equal(network.layers.hidden_2.weight, whole.layers.hidden_2.weight)
    assert "layers.classes.weight, layers.classes.routing.prior are made new" in caplog.text


@pytest.mark.parametrize("data", SHARED)
def test_images_that_come_along_are_few_and_their_licence_lies_beside_them(data):
    path = zoo_images(data)
    assert path.stat().st_size <= 60_000
    few = tc.data.from_npz(path)
    assert (len(few), few.image_shape, few.images.dtype) == (64, (1, 28, 28), torch.uint8)
    assert set(few.labels.bincount().tolist()) <= {6, 7, 8}
    assert tc.data.registry.PUBLISHED[data].terms.split(",")[0] in (
        path.with_name("README.md").read_text("utf-8")
    )
    assert {each.stem for each in path.parent.glob("*.npz")} == set(SHARED)


@pytest.mark.data
@pytest.mark.parametrize("data", SHARED)
def test_they_are_drawn_from_the_test_images(data, script):
    found = script.shared(data, root_of({"data": data}))
    few = tc.data.from_npz(zoo_images(data))
    assert (few.images.numpy() == found["images"]).all()
    assert few.labels.tolist() == found["labels"].tolist()


def test_what_it_was_trained_with_may_be_said():
    said = {"image": (1, 32, 32), "iterations": 3}
    tc.create_model("mitterreiter_5x16", pretrained="part-whole", **said)


def root_of(card):
    if card["data"] not in tc.data.registry.PUBLISHED:
        return None
    if found := os.environ.get("TORCHCAPS_DATA"):
        return Path(found)
    return pytest.skip("TORCHCAPS_DATA is not set; it names the folder of MNIST/raw and others")


@pytest.fixture
def script(monkeypatch):
    """The script that trains them and writes their cards."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("zoo")


def test_the_page_has_the_table_of_the_cards_and_runs_as_written(script, monkeypatch):
    page = script.PAGE.read_text(encoding="utf-8")
    assert script.TABLE[0] + script.table() + script.TABLE[1] in page
    few = tc.data.part_whole("test", 8)
    monkeypatch.setitem(tc.data.by_name.SOURCES, "part-whole", lambda split, root: few)
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    exec(compile(block, "docs/zoo.md", "exec"), {})


@pytest.mark.data
@pytest.mark.parametrize("name", NAMES)
def test_looking_again_gives_the_digits_of_the_card(name, script):
    card = CARDS[name]
    found = script.measured(name, card["data"], root_of(card))
    assert found == {key: card[key] for key in found}
