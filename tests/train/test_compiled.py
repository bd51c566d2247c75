"""A loss that torch.compile made a graph of is the loss without, also after a stop. The default
tier traces alone; `compile` makes machine code, for which torch needs g++."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from laid_runs import Plain, assert_same, tiny_images
from single_steps import ending, raising, step_that
from torchcaps import TorchcapsError, create_model
from torchcaps.data import Batch
from torchcaps.models.own import as_network
from torchcaps.train import compiled as of_compiled
from torchcaps.train import fit, make_recipe
from torchcaps.train.loop import Loop
from torchcaps.train.update import Update

SIZE = (1, 20, 20)
OWN = [*map(tiny_images(40, n_test=6, size=20, n_classes=3), ("train", "test"))]
# A rate that falls, class weights and a decoder; a margin that grows, masks.
RUNS = {
    "capsnet": {
        "options": {"width": 4, "types": 1, "d_primary": 4, "d_class": 4},
        **{"schedule": "exponential", "decay": 0.9, "class_weights": [1.0, 2.0, 1.0]},
        # Adam would take a step for a gradient that is rounding alone.
        **{"optimiser": "sgd", "learning_rate": 0.01},
    },
    "peer_sign_em": {
        **{"loss": "spread", "spread_steps": 20, "schedule": "cosine"},
        **{"accumulate": 2, "prune": "magnitude", "prune_to": 0.5, "prune_ramp": 1},
    },
}


@pytest.fixture
def tracing(monkeypatch):
    """Graphs are made and differentiated, and run by PyTorch; returns how many were made."""
    made = []

    def backend(graph, inputs):
        run = torch._dynamo.lookup_backend("aot_eager")(graph, inputs)
        made.append(graph)
        return run

    monkeypatch.setattr(of_compiled, "COMPILER", {"backend": backend})
    return made


def recipe_of(model, **fields):
    known = {"data": "own", "epochs": 2, "batch_size": 10, "validation_share": 0.25}
    return make_recipe(**{"model": model, **known, **RUNS[model], **fields})


# In the middle of the second epoch: of three steps, or of two that go by two batches each.
@pytest.mark.parametrize(
    ("model", "stop_at"), [("capsnet", 5), pytest.param("peer_sign_em", 3, marks=pytest.mark.slow)]
)
def test_a_compiled_run_is_the_run_without_also_after_a_stop(model, stop_at, tmp_path, tracing):
    recipe = recipe_of(model)
    eager = fit(recipe, tmp_path / "eager", own=OWN)
    assert not tracing
    whole = fit(recipe, tmp_path / "whole", own=OWN, compiled=True)
    assert len(tracing) == 1
    about = [json.loads(run.environment_file.read_text()) for run in (whole, eager)]
    assert [each.get("compiled") for each in about] == [True, None]
    weights = [load_file(run.model_file) for run in (whole, eager)]
    torch.testing.assert_close(*weights, rtol=0, atol=1e-6)
    with ending(Loop, "training_step", step_that(raising(KeyboardInterrupt()), stop_at)):
        fit(recipe, tmp_path / "run", own=OWN, compiled=True)
    assert_same(fit(recipe, tmp_path / "run", own=OWN, compiled=True), whole)


@pytest.mark.slow
def test_the_environment_says_whether_a_stretch_was_compiled(tmp_path, tracing):
    def said(**how):
        run = fit(recipe_of("capsnet", **how.pop("fields", {})), tmp_path, own=OWN, **how)
        return json.loads(run.environment_file.read_text()).get("compiled")

    assert said() is None
    assert said(fields={"epochs": 3}, compiled=True) is True
    assert said(fields={"epochs": 4}) is True
    assert len(tracing) == 1


@pytest.mark.slow
def test_many_networks_can_be_compiled_one_after_the_other(tracing):
    """Graphs of those before count for nothing: torch makes eight of a function and no more."""
    recipe = make_recipe(model="own", data="own")
    for n_classes in range(2, 7):
        update = Update(as_network(Plain(SIZE, n_classes)), recipe)
        update.compile_loss()
        for _ in range(2):
            update(Batch(torch.rand(2, 1, 20, 20), torch.tensor([0, 1])))
        # As the last of an epoch may be smaller.
        update(Batch(torch.rand(1, 1, 20, 20), torch.tensor([0])))
    assert len(tracing) == 10


def test_what_cannot_be_compiled_is_told_and_the_run_goes_on_without(tmp_path, tracing):
    class Asks(Plain):
        def forward(self, images):
            return super().forward(images if images.sum() > 0 else images + 1)

    recipe = make_recipe(model="own", data="own", epochs=1, batch_size=8)
    with pytest.raises(TorchcapsError, match=r"cannot be compiled \(Data-dep.* --compile, and"):
        fit(recipe, tmp_path, own=OWN, model=Asks(SIZE, 3), compiled=True)
    run = fit(recipe, tmp_path, own=OWN, model=Asks(SIZE, 3))
    assert run.result()["test_images"] == 6
    assert json.loads(run.environment_file.read_text())["compiled"] is False


@pytest.mark.compile
@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile makes C++")
def test_two_steps_by_machine_code_are_those_without(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    recipe, found = recipe_of("capsnet"), []
    for compile_loss in (False, True):
        torch.manual_seed(0)
        model = create_model("capsnet", image=(1, 20, 20), n_classes=3, **recipe.options)
        update = Update(model.train(), recipe)
        if compile_loss:
            update.compile_loss()
        numbers = []
        for _ in range(2):
            update(Batch(torch.rand(2, 1, 20, 20), torch.tensor([0, 1])))
            numbers.append([weight.grad.clone() for weight in update.weights])
        update.read()
        found.append((update.sums.means(), numbers))
    (means, gradients), (expected, of_eager) = found[1], found[0]
    assert means == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(gradients, of_eager, rtol=1e-3, atol=1e-5)
