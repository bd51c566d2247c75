"""What Lightning trains: the papers' losses added up by hand, Adam, and draws of one's own."""

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from error_text import text_of
from torchcaps import create_model
from torchcaps.data import Batch
from torchcaps.train import make_recipe
from torchcaps.train.module import Training
from torchcaps.types import Output


class Fixed(nn.Module):
    """Two classes with lengths 0.5 and 0.3 for every image, and a black reconstruction."""

    def __init__(self, draws, scores_are="lengths"):
        super().__init__()
        self.scores_are = scores_are
        self.lengths = nn.Parameter(torch.tensor([0.5, 0.3]))
        self.draws = draws
        self.targets = []

    def forward(self, image, target=None):
        self.targets.append(target)
        drawn = torch.zeros_like(image) if self.draws else None
        return Output(self.lengths.expand(len(image), 2), self.scores_are, None, drawn)


def recipe(**changed):
    fields = {"model": "mitterreiter_5x16", "data": "part-whole", "reconstruction_weight": 0.01}
    return make_recipe(**fields | changed)


def training(model, recipe):
    return Training(model, recipe, steps_an_epoch=10, judged_by="class")


def logged_by(training, step):
    found = {}

    def log(name, value, *, batch_size, **how):
        found[name] = (value.item(), batch_size)

    def log_dict(values, **how):
        for name, value in values.items():
            log(name, value, **how)

    training.log_dict = log_dict
    # Three images of two grey pixels each; labels 0, 0, 1.
    batch = Batch(torch.full((3, 1, 1, 2), 0.5), torch.tensor([0, 0, 1]))
    getattr(training, step)(batch, 0)
    return found


@pytest.mark.parametrize(
    ("step", "before"), [("training_step", ""), ("validation_step", "validation_")]
)
@pytest.mark.parametrize("draws", [True, False])
def test_the_loss_is_margin_plus_weighted_reconstruction(step, before, draws):
    model = Fixed(draws)
    # Right class 0: (0.9 - 0.5)² + 0.5 (0.3 - 0.1)² = 0.18; right class 1: 0.36 + 0.08 = 0.44.
    margin = (0.18 + 0.18 + 0.44) / 3
    # Two pixels off by 0.5 each: 0.5.
    # A decoder that is told the label says nothing of what the network knows of other images.
    expected = margin + (0.01 * 0.5 if draws and not before else 0)
    logged = logged_by(training(model, recipe()), step)
    parts = {"classification_loss", "reconstruction_loss"} if draws and not before else set()
    assert set(logged) == {f"{before}loss", f"{before}accuracy"} | parts
    if parts:
        assert logged["classification_loss"] == (pytest.approx(margin, abs=1e-6), 3)
        assert logged["reconstruction_loss"] == (pytest.approx(0.01 * 0.5), 3)
    assert logged[f"{before}loss"] == (pytest.approx(expected, abs=1e-6), 3)
    assert logged[f"{before}accuracy"] == (pytest.approx(2 / 3), 3)
    # The decoder is told the label: it draws the right class, not the longest.
    assert model.targets[0].tolist() == [0, 0, 1]


def test_the_validation_loss_has_the_reconstruction_where_the_recipe_asks_for_it():
    margin = (0.18 + 0.18 + 0.44) / 3
    asked = training(Fixed(draws=True), recipe(validation_loss="total"))
    logged = logged_by(asked, "validation_step")
    assert logged["validation_loss"] == (pytest.approx(margin + 0.01 * 0.5, abs=1e-6), 3)
    assert set(logged) == {"validation_loss", "validation_accuracy"}


@pytest.mark.parametrize("step", [0, 250, 500])
def test_the_validation_loss_has_the_whole_margin_of_the_spread_loss(step, monkeypatch):
    monkeypatch.setattr(Training, "global_step", step)
    spread = training(Fixed(False), recipe(loss="spread", spread_steps=500))
    # 0.2 + 0.79 σ(6); the right class leads by 0.2, 0.2 and -0.2.
    margin = 0.988047
    expected = (2 * (margin - 0.2) ** 2 + (margin + 0.2) ** 2) / 3
    logged = logged_by(spread, "validation_step")
    assert logged["validation_loss"] == (pytest.approx(expected, abs=2e-6), 3)
    # What is trained grows into it.
    trained, _ = logged_by(spread, "training_step")["loss"]
    assert (trained < expected - 0.1) == (step < 500)


def test_each_step_draws_numbers_of_its_own_whatever_was_drawn_before(monkeypatch):
    def drawn(seed, step):
        monkeypatch.setattr(Training, "global_step", step)
        torch.rand(seed + step + 1)
        training(Fixed(False), recipe(seed=seed)).on_train_batch_start((), 0)
        return float(torch.rand(()))

    moments = [(seed, step) for seed in range(3) for step in range(4)]
    numbers = {moment: drawn(*moment) for moment in moments}
    assert len(set(numbers.values())) == 12
    assert {moment: drawn(*moment) for moment in reversed(moments)} == numbers


def test_each_batch_of_an_update_draws_numbers_of_its_own():
    module = training(Fixed(False), recipe())
    drawn = []
    for every in (4, 1):
        module.trainer = trainer = lightning.Trainer(
            accelerator="cpu", logger=False, accumulate_grad_batches=every
        )
        assert trainer.accumulate_grad_batches == every
        for batch in (0, 1):
            module.on_train_batch_start((), batch)
            drawn.append(float(torch.rand(())))
    assert drawn[0] != drawn[1]
    # As ever: the number of a batch says nothing where each has an update of its own.
    assert drawn[2] == drawn[3]


def test_a_frozen_layer_stays_frozen_once_lightning_exchanged_it():
    model = create_model("rem_multilayer", image=(1, 24, 24))
    name = next(n for n, part in model.named_modules() if isinstance(part, nn.BatchNorm2d))
    module = training(model, recipe(freeze=(name,)))
    # What Trainer(sync_batchnorm=True) does on several devices.
    nn.SyncBatchNorm.convert_sync_batchnorm(module).train()
    module.on_train_batch_start((), 0)
    now = model.get_submodule(name)
    assert isinstance(now, nn.SyncBatchNorm)
    assert not now.training


TEN = [(torch.zeros(1, 1, 2), torch.tensor(0))] * 10


class Endless(IterableDataset):
    """Images that nobody counted."""

    def __iter__(self):
        return iter(TEN)


class StopSoon(Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        trainer.should_stop = True


def factors(module, loader, **how):
    """What the rate is multiplied by in updates 0 to 11, under a Trainer of one's own."""
    trainer = lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[StopSoon()],
        **how,
    )
    trainer.fit(module, loader)
    factor = trainer.lr_scheduler_configs[0].scheduler.lr_lambdas[0]
    return [factor(step) for step in range(12)]


# Lightning warns of few workers, of no validation images and of much more.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("how", "updates"),
    [
        ({"max_epochs": 3}, 10),
        ({"max_epochs": 3, "max_steps": 5}, 10),
        ({"max_steps": 5}, 10),
        ({"max_epochs": -1}, 10),
        ({"max_epochs": 3, "accumulate_grad_batches": 4}, 3),
        ({"max_epochs": 3, "limit_train_batches": 6}, 6),
    ],
)
def test_a_schedule_counts_the_batches_of_the_loader_whenever_the_trainer_stops(how, updates):
    module = Training(Fixed(False), recipe(schedule="exponential", decay=0.5))
    loader = DataLoader(TensorDataset(*map(torch.stack, zip(*TEN, strict=True))))
    expected = [0.5 ** (step // updates) for step in range(12)]
    assert factors(module, loader, **how) == expected


@pytest.mark.filterwarnings("ignore")
def test_epochs_of_a_loader_without_a_length_are_told_or_not_needed():
    loader = DataLoader(Endless())
    halves = recipe(schedule="exponential", decay=0.5)
    assert text_of(lambda: factors(Training(Fixed(False), halves), loader, max_epochs=3)) == (
        'schedule = "exponential" changes the rate by epochs, but the loader has no length, so '
        "nobody knows how many updates an epoch has; say so: Training(model, recipe, "
        "steps_an_epoch=...)."
    )
    told = Training(Fixed(False), halves, steps_an_epoch=6)
    assert factors(told, loader, max_epochs=3) == [1.0] * 6 + [0.5] * 6
    by_updates = Training(Fixed(False), halves.model_copy(update={"decay_every": 6}))
    assert factors(by_updates, loader, max_epochs=3) == [1.0] * 6 + [0.5] * 6
    assert factors(Training(Fixed(False), recipe()), loader, max_epochs=-1) == [1.0] * 12
