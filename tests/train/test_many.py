"""Several runs at once are what each is alone, bit for bit."""

import os
import signal
from collections import Counter

import pytest
import torch

from laid_runs import assert_same, tiny_images
from single_steps import before_steps, ending, signalled, step_that
from torchcaps.data import SOURCES
from torchcaps.errors import Diverged, Interrupted
from torchcaps.train import Run, fit, fit_many, make_recipe
from torchcaps.train import loop as of_loop
from torchcaps.train.loop import Loop
from torchcaps.train.many import outcomes
from torchcaps.train.seeds import STEP, seed_of

SMALL = {"width": 4, "types": 1, "d_primary": 4, "d_class": 4}
COMMON = {"data": "tiny", "batch_size": 8, "validation_share": 0.25}


DATA = {"tiny": tiny_images(40, n_test=6, size=20)}
SOURCES.update(DATA)
# Other numbers of steps an epoch, and of epochs; half precision, and images drawn at random.
RECIPES = [
    make_recipe(model="capsnet", options=SMALL, epochs=2, **COMMON),
    make_recipe(model="capsnet", options=SMALL, epochs=3, seed=1, **COMMON | {"batch_size": 5}),
    make_recipe(
        model="mitterreiter_5x16",
        options={"decoder": False},
        epochs=2,
        **{"keep": "best", "precision": "bfloat16", "crop": [18, 18]},
        **COMMON,
    ),
]
del SOURCES["tiny"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Each trained by itself."""
    folders = [tmp_path_factory.mktemp("alone") for _ in RECIPES]
    return [fit(recipe, out) for recipe, out in zip(RECIPES, folders, strict=True)]


def check_equal(runs, alone):
    for run, expected in zip(runs, alone, strict=True):
        assert_same(run, expected)


def outs(tmp_path):
    return [tmp_path / str(i) for i in range(len(RECIPES))]


def test_runs_at_once_are_what_each_is_alone(alone, tmp_path):
    torch.manual_seed(7)
    before = torch.get_rng_state()
    check_equal(fit_many(RECIPES, outs(tmp_path)), alone)
    assert torch.equal(torch.get_rng_state(), before)


def test_they_take_steps_in_turn(tmp_path, monkeypatch):
    seen = []

    def told(loop):
        # Whatever the other drew before.
        assert torch.initial_seed() == seed_of(loop.recipe.seed, STEP, loop.global_step)
        seen.append(loop.recipe.seed)

    monkeypatch.setattr(Loop, "training_step", before_steps(told))
    # Each asks whether it may be captured, as one that would draw dropout beside another.
    asked = []
    monkeypatch.setattr(of_loop, "has_dropout", lambda model: True)
    monkeypatch.setattr(of_loop, "why_not", lambda *_, shares_random: asked.append(shares_random))
    monkeypatch.setattr(of_loop, "Captured", lambda update: update)
    fit_many(RECIPES[:2], outs(tmp_path)[:2])
    assert asked == [True, True]
    # Thirty images by batches of 8, twice; and by 5, three times.
    assert Counter(seen) == {0: 8, 1: 18}
    assert seen[:16] == [0, 1] * 8


def test_stopped_they_go_on_together_or_alone(alone, tmp_path):
    folders = outs(tmp_path)
    for _ in range(2):
        with pytest.raises(
            Interrupted, match="before 3 of 3 runs were done; the same call goes on"
        ):
            fit_many(RECIPES, folders, time_budget=1e-6)
    # The first alone; then all, of which it is done.
    fit(RECIPES[0], folders[0])
    check_equal(fit_many(RECIPES, folders), alone)


def test_sigterm_stops_all_of_them(alone, tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    stopping = step_that(signalled(signal.SIGTERM), 1)
    with ending(Loop, "training_step", stopping, match="before 3 of 3"):
        fit_many(RECIPES, outs(tmp_path))
    assert signal.getsignal(signal.SIGTERM) is before
    assert all((out / "state.ckpt").is_file() for out in outs(tmp_path))
    check_equal(fit_many(RECIPES, outs(tmp_path)), alone)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_killed_each_goes_on_alone(alone, tmp_path):
    """When all are in their second epoch."""

    def killed(loop):
        if loop.recipe.seed == 1 and loop.global_step == 6:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        # Rather no end of its own than a second pytest, or one that hangs.
        try:
            signal.alarm(120)
            Loop.training_step = before_steps(killed)
            fit_many(RECIPES, outs(tmp_path))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    runs = [Run(out) for out in outs(tmp_path)]
    assert [(len(run.metrics()), run.is_done) for run in runs] == [(1, False)] * 3
    for run, recipe in zip(runs, RECIPES, strict=True):
        fit(recipe, run.folder)
    check_equal(runs, alone)


def test_one_that_fails_lets_the_others_end(alone, tmp_path):
    bad = RECIPES[0].model_copy(update={"learning_rate": 1e30})
    folders = outs(tmp_path)
    recipes = zip([bad, RECIPES[1], RECIPES[0]], folders, strict=True)
    ended = outcomes([{"recipe": recipe, "out": out} for recipe, out in recipes])
    assert isinstance(ended[0], Diverged)
    check_equal(ended[1:], [alone[1], alone[0]])
    with pytest.raises(Diverged, match="the loss became"):
        fit_many([bad, RECIPES[1]], [tmp_path / "bad", folders[1]])
