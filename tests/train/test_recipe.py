"""A recipe: frozen, told apart by its digest, the same through JSON, strict in words."""

import pytest
from pydantic import ValidationError

from error_text import text_of
from tables import beside
from torchcaps.train import Recipe, make_recipe, read_recipe

NAMES = {"model": "capsnet", "data": "mnist"}
FIELDS = beside(__file__, "fields.toml")
CHANGED, BESIDE = FIELDS["changed"], FIELDS["beside"]
# All at once, but for those that belong to another schedule, loss or pruning.
APART = {"milestones", "m_plus", "m_minus", "lambda_", "focal_gamma", "class_weights", "sampling"}
APART |= {name for name in CHANGED if name.startswith("prune")} | {"begins_with"}
TOGETHER = {name: value for name, value in CHANGED.items() if name not in APART}


def test_the_digest_changes_with_every_field():
    # That one can say no other word.
    assert set(CHANGED) | {"prune_unit"} == set(Recipe.model_fields)
    recipes = [make_recipe(**NAMES)]
    recipes += [
        make_recipe(**NAMES | BESIDE.get(name, {}) | {name: value})
        for name, value in CHANGED.items()
    ]
    recipes += [make_recipe(**NAMES, options={"routing": "dynamic"})]
    digests = {recipe.digest() for recipe in recipes}
    assert len(digests) == len(recipes)
    assert all(len(digest) == 12 and int(digest, 16) >= 0 for digest in digests)


def test_the_digest_is_the_same_in_every_process():
    # Pinned, because records name runs by it. A new field is `Younger`, and moves the
    # second alone.
    assert make_recipe(**NAMES).digest() == "bfff74794af2"
    assert make_recipe(**TOGETHER).digest() == "069b0e755fea"


def test_the_layout_is_that_of_the_table_and_is_written_out():
    measured = {"model": "efficient_capsnet", "data": "mnist"}
    recipe = make_recipe(**measured)
    assert recipe.channels_last
    assert recipe == make_recipe(**measured, channels_last=True)
    assert recipe.digest() == make_recipe(**measured, channels_last=True).digest()
    assert '"channels_last":true' in recipe.model_dump_json()
    assert not make_recipe(**measured, channels_last=False).channels_last
    assert not make_recipe(**measured, precision="bfloat16").channels_last
    assert not make_recipe(**NAMES).channels_last


def test_equal_recipes_have_equal_digests():
    one = make_recipe(**NAMES, options={"iterations": 1, "bias": True})
    other = make_recipe(**NAMES, options={"bias": True, "iterations": 1})
    assert one == other
    assert one.digest() == other.digest()


def test_json_brings_back_the_same_recipe(tmp_path):
    options = {"routing": "uniform", "iterations": 2, "bias": True, "weight_std": 1.0}
    recipe = make_recipe(**TOGETHER | {"options": options})
    file = tmp_path / "recipe.json"
    file.write_text(recipe.model_dump_json())
    back = read_recipe(file)
    assert back == recipe
    assert back.digest() == recipe.digest()
    kinds = [type(value) for value in back.options.values()]
    assert kinds == [str, int, bool, float]


def test_none_takes_back_what_a_protocol_says():
    """TOML has no value for nothing, nor has a command line."""
    asked = {"model": "rem_dr", "data": "mnist", "protocol": "rem"}
    assert make_recipe(**asked).patience == 200
    without = make_recipe(**asked, patience="none", augment="none")
    assert (without.patience, without.augment) == (None, None)
    assert without == make_recipe(**asked, patience=None, augment=None)
    assert make_recipe(model="rem_dr", data="mnist", protocol="none").protocol is None


def test_a_recipe_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        make_recipe(**NAMES).epochs = 5


@pytest.mark.parametrize(
    "name", ["epochs", "seed", "batch_size", "learning_rate", "patience", "stop_at", "options"]
)
def test_a_number_of_thousands_of_digits_is_not_written_out(name):
    value = {"kernel": 10**5000} if name == "options" else 10**5000
    text = text_of(lambda: make_recipe(**NAMES, **{name: value}))
    assert text.endswith("not a number of thousands of digits.")
    value = {"kernel": 10**4000} if name == "options" else 10**4000
    assert len(text_of(lambda: make_recipe(**NAMES, **{name: value}))) < 300


def test_a_list_of_names_is_told_once():
    """Found by make fuzz with seed 2513940233: of three lists the sentence had 2,000 letters."""
    said = text_of(lambda: make_recipe(model="auto", data="auto", test_data="auto"))
    assert said.endswith("; test_data: the same.")
    assert said.count("tiny-imagenet") == 1
