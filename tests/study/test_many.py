"""One recipe over seeds and over values of its options."""

import sys

import pytest

from error_text import text_of
from torchcaps.study import many
from torchcaps.study.many import seeds_in, swept_options, train_many
from torchcaps.train import make_recipe


@pytest.mark.parametrize(
    ("text", "seeds"), [("0-4", (0, 1, 2, 3, 4)), ("3", (3,)), ("0,2,2,5", (0, 2, 5))]
)
def test_seeds(text, seeds):
    assert seeds_in(text) == seeds


@pytest.mark.parametrize("text", ["", "4-0", "a", "0:4", "0-", "1,"])
def test_what_is_no_seed(text):
    assert text_of(lambda: seeds_in(text)) == (
        f"--seeds must be a range from low to high or a list, for example 0-4 or 0,2,5, but came "
        f"as {text!r}."
    )


@pytest.mark.parametrize("text", ["4294967296", "4294967290-4294967296", "0,4294967296,1"])
def test_a_seed_that_no_record_can_hold(text):
    assert seeds_in("4294967295") == (2**32 - 1,)
    assert text_of(lambda: seeds_in(text)) == (
        "--seeds must name seeds from 0 to 4294967295, but 4294967296 is beyond; was a digit typed "
        "twice?"
    )


def test_an_option_that_is_a_list_has_one_value():
    recipe = make_recipe(
        model="mitterreiter_grid",
        data="part-whole",
        options={"widths": "16,16", "routing": "dynamic,uniform,dynamic", "d_pose": 4},
    )
    assert swept_options(recipe) == {"routing": ["dynamic", "uniform"]}


def test_every_seed_and_value_is_one_run(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(many, "finish", lambda cell, ledger, _: seen.append(cell.recipe))
    monkeypatch.setattr("torchcaps.study.comparison.compare", lambda folders: folders)
    recipe = make_recipe(
        model="peer_sign_em", data="sign", options={"iterations": "1,2", "bias": "True,False"}
    )
    folders = train_many(recipe, tmp_path, seeds=(0, 1))
    trained = [(each.seed, each.options["iterations"], each.options["bias"]) for each in seen]
    assert trained == [(s, i, b) for s in (0, 1) for i in (1, 2) for b in (True, False)]
    assert len(set(folders)) == 8


@pytest.mark.parametrize(
    ("model", "data", "options", "said"),
    [
        (
            *("capsnet", "part-whole", {"kernel": "9,400"}),
            "kernel=400: an image of (channels, height, width) = (1, 32, 32) does not pass through",
        ),
        (
            *("peer_sign_em", "sign", {"iterations": "1,x"}),
            "peer_sign_em takes iterations as int, for example 3, but it came as 'x'.",
        ),
    ],
)
def test_a_value_that_is_refused_is_told_before_any_training(
    monkeypatch, tmp_path, model, data, options, said
):
    monkeypatch.setattr(many, "finish", lambda *_: pytest.fail("it was trained"))
    recipe = make_recipe(model=model, data=data, options=options)
    assert text_of(lambda: train_many(recipe, tmp_path)).startswith(said)


def test_without_scipy_nothing_is_trained(monkeypatch, tmp_path):
    """Training needs none, and the intervals of what was trained do."""
    for name in ("comparison", "intervals"):
        monkeypatch.delitem(sys.modules, f"torchcaps.study.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setattr(many, "finish", lambda *_: pytest.fail("it was trained"))
    recipe = make_recipe(model="peer_sign_em", data="sign")
    with pytest.raises(ModuleNotFoundError, match=r"needs scipy, .* pip install 'torchcaps\[study"):
        train_many(recipe, tmp_path, seeds=[0, 1])
