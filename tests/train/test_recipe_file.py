"""Recipes out of files: those that TOML and JSON spell; a file that is none is told by name."""

import json

import pytest

from torchcaps.train import make_recipe, read_recipe


def test_toml_gives_the_recipe_it_spells(tmp_path):
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


def test_the_layout_of_a_file_that_does_not_name_it(tmp_path):
    fields = {"model": "efficient_capsnet", "data": "mnist"}
    (tmp_path / "recipe.toml").write_text('model = "efficient_capsnet"\ndata = "mnist"\n')
    assert read_recipe(tmp_path / "recipe.toml") == make_recipe(**fields)
    # Written by a torchcaps that did not know the field: every layout was the other.
    (tmp_path / "recipe.json").write_text('{"model": "efficient_capsnet", "data": "mnist"}')
    assert read_recipe(tmp_path / "recipe.json") == make_recipe(**fields, channels_last=False)


@pytest.mark.parametrize(
    ("protocol", "field"), [("tsai_cifar", "standardise"), ("rem_pruned", "prune")]
)
def test_a_protocol_fills_in_nothing_that_a_run_did_not_know(tmp_path, protocol, field):
    fields = {"model": "capsnet", "data": "mnist", "protocol": protocol}
    for name in ("recipe.json", "recipe.toml"):
        rows = json.dumps(fields), "\n".join(f"{key} = {value!r}" for key, value in fields.items())
        (tmp_path / name).write_text(rows[name.endswith("toml")])
    assert getattr(read_recipe(tmp_path / "recipe.json"), field) is None
    # Somebody who writes one today means the protocol of today.
    assert getattr(read_recipe(tmp_path / "recipe.toml"), field) is not None
