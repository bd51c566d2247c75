"""What a state lacks is told: of each kind of state, and each part of it."""

import copy
import shutil

import pytest
import torch

from error_text import text_of
from torchcaps.data import SOURCES, PartWholeSpec, part_whole
from torchcaps.errors import Interrupted
from torchcaps.train import Run, fit, make_recipe
from torchcaps.train.state_parts import COUNTS, faults

SIZES = {"train": 48, "test": 12}
STEPS = "epoch_loop.automatic_optimization.optim_progress"


def recipe(**changed):
    fields = {"model": "mitterreiter_5x16", "data": "tiny", "epochs": 2, "batch_size": 16}
    rate = {"schedule": "exponential", "decay": 0.5, "decay_every": 1}
    return make_recipe(**{"options": {"decoder": False}} | fields | rate | changed)


@pytest.fixture(scope="module", autouse=True)
def _tiny():
    def tiny(split, root):
        return part_whole(split, SIZES[split], spec=PartWholeSpec(size=20))

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCES, "tiny", tiny)
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return fit(recipe(), tmp_path_factory.mktemp("trained"))


def state_of(run):
    return torch.load(run.state_file, weights_only=True)


def fit_loop(state):
    return state["loops"]["fit_loop"]


def optimiser(state):
    return state["optimizer_states"][0]


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda s: s.update(lr_schedulers=[]), "lr_schedulers.0.last_epoch should be a count"),
        (lambda s: s["lr_schedulers"][0].clear(), "lr_schedulers.0.last_epoch should be a count"),
        (lambda s: s.update(optimizer_states=[]), "optimizer_states holds no optimiser"),
        (
            lambda s: optimiser(s).update(state={}),
            "has done steps, but keeps nothing of them",
        ),
        (lambda s: optimiser(s)["state"][3].clear(), "its optimiser keeps no 'step' of weight 3"),
        (
            lambda s: optimiser(s)["state"][3].pop("exp_avg_sq"),
            "its optimiser keeps no 'exp_avg_sq' of weight 3",
        ),
        (
            lambda s: s["callbacks"]["Measures"].pop("dead_for"),
            "callbacks.Measures.dead_for should be by name, but is missing",
        ),
        (
            lambda s: s["callbacks"]["Measures"].update(dead_for={"primary": 3}),
            "callbacks.Measures.dead_for.primary is no measured tensor",
        ),
        (
            lambda s: s["callbacks"]["Measures"].update(norms={"primary": torch.ones(3)}),
            "callbacks.Measures.norms.primary is no measured tensor",
        ),
        (
            lambda s: s["callbacks"]["Measures"].update(norms=7),
            "callbacks.Measures.norms should be by name, but is 7",
        ),
        (lambda s: fit_loop(s).clear(), "combined_loader.0.given should be a count"),
        (
            lambda s: fit_loop(s).pop("epoch_progress"),
            "epoch_progress.total.ready should be a count",
        ),
        (
            lambda s: fit_loop(s)["epoch_progress"]["current"].clear(),
            "loops.fit_loop.epoch_progress.current.ready should be a count, but is missing",
        ),
        (lambda s: s.update(epoch="x"), "epoch should be a count, but is 'x'"),
        (lambda s: s.update(epoch=-5), "epoch should be a count, but is -5"),
        (lambda s: s.update(epoch=True), "epoch should be a count, but is True"),
        (lambda s: s.update(epoch=torch.zeros(2)), "epoch should be a count, but is tensor("),
        (lambda s: s.update(epoch=5), "epoch is 5, but loops.fit_loop."),
        (lambda s: s.update(global_step=5), "global_step is 5, but loops.fit_loop."),
        (lambda s: s.update(global_step=torch.zeros(2)), "global_step should be a count, but is"),
        (lambda s: optimiser(s)["param_groups"][0].update(params=[[]]), "keeps nothing of them"),
        (lambda s: s.update(callbacks={}), "callbacks.SaveState is missing"),
        (lambda s: s["callbacks"].update(SaveState={}), "callbacks.SaveState is {}"),
    ],
)
def test_a_state_that_lacks_what_steers_is_refused(trained, tmp_path, damage, told):
    """Lightning took each, and most ended with other weights."""
    run = Run(shutil.copytree(trained.folder, tmp_path / "run"))
    (run.folder / "digests.json").unlink()
    state = state_of(run)
    damage(state)
    torch.save(state, run.state_file)
    text = text_of(lambda: fit(recipe(epochs=3), run.folder))
    assert text.startswith(f"{run.state_file} cannot be gone on from (")
    assert told in text
    assert text.endswith("or remove it, and the run begins anew.")


def test_every_count_is_looked_at(trained):
    whole = state_of(trained)
    assert faults(whole, recipe()) == []
    for *above, last in COUNTS:
        state = place = copy.deepcopy(whole)
        for key in above:
            place = place[key]
        place[last] = -1
        assert [".".join(map(str, (*above, last)))] == [
            fault.removesuffix(" should be a count, but is -1") for fault in faults(state, recipe())
        ]


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"stop_at": 0.5}, "StopAtAccuracy"),
        ({"patience": 2}, "StopWithoutProgress"),
        ({"keep": "best"}, "KeepBest"),
    ],
)
def test_what_a_recipe_remembers_is_asked_for(trained, changed, name):
    assert faults(state_of(trained), recipe(**changed)) == [f"callbacks.{name} is missing"]


def test_the_scale_of_float16_is_asked_for(trained):
    state, half = state_of(trained), recipe(precision="float16")
    assert faults(state, half) == ["it holds no scale of the loss"]
    # The first steps overflow, and are left out.
    optimiser(state)["state"] = {}
    assert faults(state | {"MixedPrecision": {"scale": 65536.0}}, half) == []


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "changed",
    [
        {"optimiser": "adamw"},
        {"optimiser": "sgd"},
        {"optimiser": "sgd", "momentum": 0.9},
        {"schedule": "steps", "milestones": (1,), "decay_every": None},
        {"schedule": "cosine", "decay": 1.0, "decay_every": None},
        {"schedule": "constant", "decay": 1.0, "decay_every": None, "precision": "bfloat16"},
        {"accumulate": 2},
        {"freeze": ("backbone",)},
        {"prune": "snip", "prune_to": 0.5},
        {"stop_at": 0.01, "patience": 1, "keep": "best"},
    ],
)
def test_a_state_is_whole_within_an_epoch_and_after_it(tmp_path, changed):
    asked = recipe(epochs=1, **changed)
    with pytest.raises(Interrupted):
        fit(asked, tmp_path, time_budget=1e-6)
    assert faults(state_of(Run(tmp_path)), asked) == []
    run = fit(asked, tmp_path)
    assert faults(state_of(run), asked) == []


def test_a_weight_without_a_gradient_has_nothing_kept(trained):
    state = state_of(trained)
    del optimiser(state)["state"][3]
    assert faults(state, recipe()) == []


def test_before_the_first_step_nothing_is_kept(trained):
    state = state_of(trained)
    optimiser(state)["state"] = {}
    fit_loop(state)[STEPS]["optimizer"]["step"]["total"]["completed"] = 0
    assert faults(state | {"global_step": 0}, recipe()) == []
