"""Epochs of training steps and of validation, and those who watch them."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchcaps.data import Batch, JudgedBy
from torchcaps.models.images import evaluating
from torchcaps.prune import Pruner
from torchcaps.train.answers import is_correct
from torchcaps.train.batches import Batches, brought
from torchcaps.train.captured import Captured, has_dropout, is_asked_for, why_not
from torchcaps.train.folder.state import RECIPE, write_state
from torchcaps.train.frozen import eval_frozen
from torchcaps.train.loss import loss_parts
from torchcaps.train.ranks import Ranks
from torchcaps.train.recipe import Recipe
from torchcaps.train.seeds import STEP, begin_random, seed_of
from torchcaps.train.update import Sums, Update, computing
from torchcaps.train.weighing import weighed
from torchcaps.types import Output

# How measures after an epoch begin where nothing is held out: they are of training images.
TRAINING_SAMPLE = "training_sample"


class Watcher:
    """Something that happens beside the steps of a loop, at the moments that its methods name.

    What `state_dict` returns is kept in the state of a run by the name of the class.
    """

    # Attributes that are kept.
    kept: tuple[str, ...] = ()

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.kept}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what an earlier stretch of the run remembered."""
        for name in self.kept:
            setattr(self, name, state_dict[name])

    def on_train_start(self, loop: "Loop") -> None:
        """Act before the first step of this stretch."""

    def on_train_epoch_start(self, loop: "Loop") -> None:
        """Act before the first step of an epoch."""

    def on_train_batch_end(self, loop: "Loop", batch_idx: int) -> None:
        """Act after each batch, counted from 0 in its epoch."""

    def on_validation_start(self, loop: "Loop") -> None:
        """Act after the last step of an epoch; the network is in evaluation mode until its end."""

    def on_validation_batch_end(self, loop: "Loop", out: Output, batch: Batch) -> None:
        """Take what the network said of some validation images."""

    def on_validation_epoch_end(self, loop: "Loop") -> None:
        """Measure when all validation images were shown."""

    def on_validation_end(self, loop: "Loop") -> None:
        """Decide when all was measured."""

    def on_train_epoch_end(self, loop: "Loop") -> None:
        """Act when an epoch is over."""

    def teardown(self, loop: "Loop", *, failed: bool) -> None:
        """Tidy up at the end, however it comes."""


class Loop:
    """Trains a network, which is on its device. What is measured of an epoch is in `metrics`, by
    name.

    watchers: are told what happens, in this order; one ends training by `should_stop`.
    pruner: prunes within the steps.
    network: the model as several devices share it; None: the model itself.
    beside: whether other loops train on the device at the same time.
    """

    def __init__(
        self,
        recipe: Recipe,
        model: nn.Module,
        training: Batches,
        validation: Batches,
        *,
        watchers: Sequence[Watcher] = (),
        ranks: Ranks,
        pruner: Pruner | None = None,
        network: nn.Module | None = None,
        beside: bool = False,
    ):
        self.recipe, self.model, self.ranks = recipe, model, ranks
        self.training, self.validation, self.watchers = training, validation, watchers
        self.update = Update(
            self.model,
            weighed(recipe, training.images),
            judged_by=training.images.judged_by,
            steps_an_epoch=-(-len(training) // self.recipe.accumulate),
            pruner=pruner,
            network=network,
        )
        why = why_not(recipe, self.device, ranks, shares_random=beside and has_dropout(model))
        self.step: Callable[..., None] = self.update if why else Captured(self.update)
        if why and is_asked_for():
            logging.getLogger("torchcaps").warning("no graph is made of a training step: %s", why)
        self.current_epoch = 0
        self.should_stop = False
        # Whether a step of this stretch is over, with all that happens after it.
        self.has_trained = False
        self.metrics: dict[str, float] = {}

    @property
    def device(self) -> torch.device:
        return self.update.device

    @property
    def global_step(self) -> int:
        """Updates so far."""
        return self.update.step

    @property
    def is_last_batch(self) -> bool:
        """Whether all of this epoch's batches were trained on."""
        return self.training.given >= len(self.training)

    def train(self, state: Path | None = None) -> Iterator[None]:
        """Train the epochs that are left, after a state if there is one, a step at each `next`."""
        if state is not None:
            self._restore(torch.load(state, weights_only=True, map_location="cpu"))
        failed = True
        try:
            self._tell(lambda each: each.on_train_start(self))
            while self.current_epoch < self.recipe.epochs and not self.should_stop:
                yield from self._epoch()
                self.current_epoch += 1
            failed = False
        finally:
            self._tell(lambda each: each.teardown(self, failed=failed))

    def log(self, name: str, value: float | Tensor) -> None:
        """Have it among the measures of the epoch, as a float32."""
        self.metrics[name] = float(torch.as_tensor(value, dtype=torch.float32))

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        """Train on a batch, counted from 0 in its epoch."""
        every, batches = self.recipe.accumulate, len(self.training)
        # Few batches may be left for the last update.
        begun = batch_idx - batch_idx % every
        of = min(every, batches - begun)
        last = batch_idx + 1 == begun + of
        share = self.training.share
        network: Any = self.update.network
        with nullcontext() if last or self.ranks.count == 1 else network.no_sync():
            self.step(
                batch,
                images=len(batch.labels) if share else 0,
                factor=float(np.float32(1 / every) * np.float32(share * every / of)),
                first=batch_idx == begun,
                last=last,
            )

    def validation_step(self, batch: Batch) -> tuple[Output, dict[str, Tensor]]:
        """Ask what the network says of a batch, and the means that are logged of it."""
        update = self.update
        with computing(self.recipe.precision, self.device):
            return validated(update.network, update.recipe, batch, judged_by=update.judged_by)

    def shown(self) -> Iterator[tuple[Batch, tuple[Output, dict[str, Tensor]], bool]]:
        """Show the network each batch of validation, last whether it counts: no stand-in does."""
        for batch in self.validation:
            here = brought(batch, self.device)
            yield here, self.validation_step(here), self.validation.share > 0

    def save(self, path: Path) -> None:
        """Write down all that is needed to go on."""
        write_state(self.state(), path)

    def state(self) -> dict[str, Any]:
        """Give all that is needed to go on, by the names that Lightning has for it."""
        state = {
            "epoch": self.current_epoch,
            "global_step": self.global_step,
            "state_dict": {f"model.{n}": t for n, t in self.model.state_dict().items()},
            "loops": {
                "fit_loop": {
                    "state_dict": {"combined_loader": [self.training.state_dict()]},
                    "epoch_loop.batch_progress": {"is_last_batch": self.is_last_batch},
                }
            },
            "callbacks": {
                type(each).__name__: kept for each in self.watchers if (kept := each.state_dict())
            },
            "optimizer_states": [self.update.state()],
            RECIPE: self.recipe.model_dump_json(),
        }
        if self.update.scaler.is_enabled():
            state["MixedPrecision"] = self.update.scaler.state_dict()
        return state

    def _restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(
            {name.removeprefix("model."): each for name, each in state["state_dict"].items()}
        )
        (optimiser,) = state["optimizer_states"]
        self.update.load_state(optimiser, step=state["global_step"])
        if self.update.scaler.is_enabled():
            self.update.scaler.load_state_dict(state["MixedPrecision"])
        for each in self.watchers:
            kept = state["callbacks"].get(type(each).__name__)
            if kept is not None:
                each.load_state_dict(kept)
        self.current_epoch = state["epoch"]
        (batches,) = state["loops"]["fit_loop"]["state_dict"]["combined_loader"]
        if batches["given"] < len(self.training):
            self.training.load_state_dict(batches)
        else:
            self.current_epoch += 1

    def _tell(self, act: Callable[[Watcher], None]) -> None:
        for each in self.watchers:
            act(each)

    def _epoch(self) -> Iterator[None]:
        self.training.sampler.set_epoch(self.current_epoch)
        self.update.epoch = self.current_epoch
        if not self.training.sampler.skip:
            self._tell(lambda each: each.on_train_epoch_start(self))
        for batch in self.training:
            # Others may train here; whatever random numbers they leave, the step begins anew.
            yield
            at = self.training.given - 1
            # Whatever draws random numbers in a step draws the same after a resume.
            parts = () if self.recipe.accumulate == 1 else (at,)
            seed = seed_of(self.recipe.seed, STEP, self.global_step, *parts)
            begin_random(seed, self.device)
            # Who looked at the network may have put the whole of it into training mode.
            eval_frozen(self.model, self.recipe.freeze)
            self.training_step(brought(batch, self.device), at)
            self._tell(lambda each, at=at: each.on_train_batch_end(self, at))  # type: ignore[misc]
            self.has_trained = True
            if self.should_stop:
                break
        self.update.read()
        self._validate()
        self.metrics |= self.over_ranks(self.update.sums).means()
        self.update.sums.clear()
        self._tell(lambda each: each.on_train_epoch_end(self))

    @torch.no_grad()
    def _validate(self) -> None:
        with evaluating(self.model):
            self._tell(lambda each: each.on_validation_start(self))
            rows, counts = [], []
            for batch, (out, means), is_own in self.shown():
                if is_own:
                    rows.append(torch.stack(list(means.values())))
                    counts.append(len(batch.labels))
                    for each in self.watchers:
                        each.on_validation_batch_end(self, out, batch)
            sums = Sums()
            for row, count in zip(torch.stack(rows).cpu().numpy(), counts, strict=True):
                sums.add_row(means, row, count)
            self.metrics = self.over_ranks(sums).means()
            self._tell(lambda each: each.on_validation_epoch_end(self))
            self._tell(lambda each: each.on_validation_end(self))

    def over_ranks(self, sums: Sums) -> Sums:
        together = Sums()
        for each in self.ranks.gathered(sums):
            for name, (total, count) in each.items():
                before, of = together.get(name, (total.dtype.type(0), 0))
                together[name] = before + total, of + count
        return together


def validated(
    network: nn.Module, recipe: Recipe, batch: Batch, *, judged_by: JudgedBy
) -> tuple[Output, dict[str, Tensor]]:
    """Say what a network says of a batch of validation, and the means that are logged of it."""
    out = network(batch.pixels, batch.labels)
    # By the same margin after every epoch, or losses could not be compared.
    terms = loss_parts(recipe, out, batch, recipe.spread_steps)
    # A decoder makes the reconstruction of the class that the label names.
    loss = terms["classification_loss"]
    if recipe.validation_loss == "total":
        loss = torch.stack(list(terms.values())).sum()
    right = is_correct(out, batch.labels, judged_by=judged_by).float().mean()
    shown = "validation" if recipe.validation_share else TRAINING_SAMPLE
    return out, {f"{shown}_loss": loss, f"{shown}_accuracy": right}
