"""Recipes out of files: those that TOML and JSON spell; a file that is none is told by name."""

import json
from pathlib import Path

import pytest

from error_text import text_of
from torchcaps.train import make_recipe, read_recipe


def test_toml_gives_the_recipe_it_spells(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text(
        'model = "mitterreiter_5x16"\ndata = "part-whole"\nepochs = 4\nlearning_rate = 0.0011\n'
        'schedule = "steps"\nmilestones = [2, 3]\ndecay = 0.1\nseed = 1\n'
        '[options]\nrouting = "uniform"\n'
    )
    assert read_recipe(file) == make_recipe(
        model="mitterreiter_5x16",
        data="part-whole",
        epochs=4,
        learning_rate=0.0011,
        schedule="steps",
        milestones=(2, 3),
        decay=0.1,
        seed=1,
        options={"routing": "uniform"},
    )


def test_the_layout_of_a_file_that_does_not_name_it(tmp_path: Path) -> None:
    fields = {"model": "efficient_capsnet", "data": "mnist"}
    (tmp_path / "recipe.toml").write_text('model = "efficient_capsnet"\ndata = "mnist"\n')
    assert read_recipe(tmp_path / "recipe.toml") == make_recipe(**fields)
    # Written by a torchcaps that did not know the field: every layout was the other.
    (tmp_path / "recipe.json").write_text('{"model": "efficient_capsnet", "data": "mnist"}')
    assert read_recipe(tmp_path / "recipe.json") == make_recipe(**fields, channels_last=False)


@pytest.mark.parametrize(
    ("protocol", "field"), [("tsai_cifar", "standardise"), ("rem_pruned", "prune")]
)
def test_a_protocol_fills_in_nothing_that_a_run_did_not_know(tmp_path, protocol, field) -> None:
    fields = {"model": "capsnet", "data": "mnist", "protocol": protocol}
    for name in ("recipe.json", "recipe.toml"):
        rows = json.dumps(fields), "\n".join(f"{key} = {value!r}" for key, value in fields.items())
        (tmp_path / name).write_text(rows[name.endswith("toml")])
    assert getattr(read_recipe(tmp_path / "recipe.json"), field) is None
    # Somebody who writes one today means the protocol of today.
    assert getattr(read_recipe(tmp_path / "recipe.toml"), field) is not None


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.toml", b"model =", "a.toml cannot be read as TOML (Invalid value"),
        ("a.toml", b"\xff\xfe", "a.toml cannot be read as TOML (it is not text in UTF-8)."),
        (
            "a.toml",
            b'data = "mnist"',
            "the recipe does not hold: model is missing, --model on the command line.",
        ),
        ("a.toml", b"epochz = 3", "a recipe has no field 'epochz'; did you mean 'epochs'? known:"),
        ("a.toml", b"epochs = " + b"9" * 5000, "TOML (it holds a number of thousands of digits)."),
        ("a.toml", b"a=" + b"{a=" * 4000, "TOML (its brackets are nested too deeply)."),
        ("a.toml", b"a" + b".a" * 50_000 + b"=1", "has 100,003 bytes, and a recipe has at most"),
        ("a.json", b'{"seed": ' + b"9" * 5000, "JSON (it holds a number of thousands of digits)."),
        ("a.json", b"[" * 10_000, "JSON (its brackets are nested too deeply)."),
        ("a.json", b"{", "a.json cannot be read as JSON (Expecting property name"),
        ("a.json", b"[]", "a.json must hold names with values, one a field of the recipe, and"),
        (
            "a.json",
            b'{"model": "capsnet"}',
            "a.json: the recipe does not hold: data is missing, --data on the command line.",
        ),
        (
            "a.json",
            b'{"model": "capsnet", "data": "mnist", "epochz": 3}',
            "a.json: a recipe has no field 'epochz'; did you mean 'epochs'? known:",
        ),
    ],
)
def test_a_file_that_is_no_recipe_is_told_by_name(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    assert words in text_of(lambda: read_recipe(file))


def test_a_missing_file_is_told_by_name(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    expected = f"there is no recipe at {missing}; a run folder holds a recipe.json."
    assert text_of(lambda: read_recipe(missing)) == expected
