"""The loop of `fit` gives what Lightning's Trainer gives of `Training`, bit for bit, and adds few
operators to a step."""

import warnings

import lightning
import pytest
import safetensors.torch
import torch

from laid_runs import tiny_images
from recorded_graph import Recorded
from torchcaps.errors import Interrupted
from torchcaps.train import Training, fit, make_recipe
from torchcaps.train.batches import Batches
from torchcaps.train.images import watched
from torchcaps.train.loop import Loop
from torchcaps.train.loss import loss_parts
from torchcaps.train.measures import Measures
from torchcaps.train.optimiser import make_optimiser
from torchcaps.train.ranks import Ranks
from torchcaps.train.seeds import begin_random
from torchcaps.train.start import initial_model

OWN = [*map(tiny_images(40, n_test=6, size=20, n_classes=3), ("train", "test"))]
FIELDS = {"data": "own", "epochs": 3, "batch_size": 8, "validation_share": 0.25}
SMALL = {"width": 4, "types": 1, "d_primary": 4, "d_class": 4}
# Adam and a decoder; momentum, a rate that falls, statistics of batches, and an update of three
# batches, of which the last one of an epoch has one; a margin that grows, in half precision.
RECIPES = {
    "capsnet": {"options": SMALL},
    "mitterreiter_5x16": {
        **{"options": {"decoder": False}, "optimiser": "sgd", "learning_rate": 0.05},
        **{"momentum": 0.9, "schedule": "steps", "decay": 0.5, "milestones": [1, 2]},
        **{"accumulate": 3},
    },
    "peer_sign_em": {
        **{"loss": "spread", "spread_steps": 20, "schedule": "cosine"},
        **{"optimiser": "adamw", "weight_decay": 0.01, "precision": "bfloat16"},
    },
}


def by_lightning(recipe):
    """The network that Lightning trains of the same first weights and images."""
    training, _ = watched(recipe, OWN[0])
    model = initial_model(recipe, training)
    batches = Batches(training, recipe.batch_size, seed=recipe.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=recipe.epochs,
            accumulate_grad_batches=recipe.accumulate,
            precision={"float32": "32-true", "bfloat16": "bf16-mixed"}[recipe.precision],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
        with torch.random.fork_rng():
            trainer.fit(Training(model, recipe), batches)
    return model


@pytest.mark.parametrize("model", RECIPES)
def test_it_trains_as_lightning_does_also_after_a_stop(model, tmp_path):
    recipe = make_recipe(model=model, **FIELDS, **RECIPES[model])
    expected = by_lightning(recipe).state_dict()
    for _ in range(6):
        with pytest.raises(Interrupted):
            fit(recipe, tmp_path, own=OWN, time_budget=1e-6)
    run = fit(recipe, tmp_path, own=OWN)
    found = safetensors.torch.load_file(run.model_file)
    torch.testing.assert_close(found, dict(expected), rtol=0, atol=0)


@pytest.mark.parametrize("model", ["capsnet", "mitterreiter_5x16"])
def test_it_adds_at_most_ten_operators_to_a_step(model):
    """They were 95 to 130."""
    recipe = make_recipe(model=model, **FIELDS)
    training, validation = watched(recipe, OWN[0])
    network = initial_model(recipe, training)
    batches, few = (Batches(each, 8, seed=0) for each in (training, validation))
    loop = Loop(recipe, network, batches, few, ranks=Ranks(), watchers=[Measures(validation)])
    loop.watchers[0].on_train_start(loop)
    batch = training.batch(slice(0, 8))
    loop.training_step(batch, 0)
    with Recorded() as ours:
        loop.training_step(batch, 0)
    optimiser = make_optimiser(recipe, network.parameters())
    own = []
    for _ in range(2):
        with Recorded() as step:
            optimiser.zero_grad()
            out = network(batch.pixels, batch.labels)
            torch.stack(list(loss_parts(recipe, out, batch).values())).sum().backward()
            optimiser.step()
        own.append(len(step.calls))
    assert own[1] > 100
    assert len(ours.calls) - own[1] <= 10


def test_who_asks_for_graphs_is_told_why_there_are_none(monkeypatch, caplog):
    recipe = make_recipe(model="capsnet", **FIELDS)
    training, validation = watched(recipe, OWN[0])
    network = initial_model(recipe, training)
    batches = [Batches(each, 8) for each in (training, validation)]
    for asked in ("0", "1"):
        monkeypatch.setenv("TORCHCAPS_CAPTURE", asked)
        Loop(recipe, network, *batches, ranks=Ranks())
    assert [record.message for record in caplog.records] == [
        "no graph is made of a training step: graphs are for a GPU"
    ]


def test_a_step_begins_the_random_numbers_of_its_own_device_alone(monkeypatch):
    """As torch.manual_seed does, which takes a sixth of a millisecond for devices nobody has."""
    torch.manual_seed(5)
    expected = torch.rand(3)
    gpus = [torch.Generator().manual_seed(1) for _ in range(3)]
    monkeypatch.setattr(torch.cuda, "default_generators", gpus)
    monkeypatch.setattr(torch, "manual_seed", None)
    for device, seeds in (("cpu", [1, 1, 1]), ("cuda:2", [1, 1, 5])):
        torch.rand(1)
        begin_random(5, torch.device(device))
        assert torch.equal(torch.rand(3), expected)
        assert [gpu.initial_seed() for gpu in gpus] == seeds
