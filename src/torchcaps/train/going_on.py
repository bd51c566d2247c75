"""Going on from a state: what fails before its first step is over is a fault of the state."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback

from torchcaps.errors import TorchcapsError
from torchcaps.models.own import OWN
from torchcaps.train.optimiser import lay_out
from torchcaps.train.own_code import imported_files
from torchcaps.train.recipe import Recipe

__all__ = ["FirstStep", "going_on_from"]


class FirstStep(Callback):
    """Whether a step is over, with all that Lightning does after it, so that a state that was gone
    on from has shown to be sound."""

    has_begun = is_over = False

    def on_train_start(self, trainer: lightning.Trainer, module: Any) -> None:
        for optimiser in trainer.optimizers:
            lay_out(optimiser)

    def on_train_batch_start(self, *_: Any) -> None:
        self.is_over = self.has_begun
        self.has_begun = True

    def on_train_epoch_end(self, *_: Any) -> None:
        self.is_over = True


@contextmanager
def going_on_from(state: Path | None, recipe: Recipe, first: FirstStep) -> Iterator[None]:
    """Say in a sentence what is wrong with a state that Lightning cannot go on from."""
    try:
        yield
    except (TorchcapsError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if state is None or first.is_over:
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1].strip()
        if str(error).startswith("Error(s) in loading state_dict"):
            raise TorchcapsError(
                f"the state in {state.parent} is of a network of other sizes ({reason}); make "
                f"yours as it was, or choose another folder."
            ) from None
        # Code of one's own has errors of its own.
        if recipe.model == OWN or recipe.data == OWN or imported_files():
            raise
        raise TorchcapsError(
            f"{state} cannot be gone on from ({reason[:200]}); is it damaged, or of other "
            f"versions? Put back a whole copy, or remove it, and the run begins anew."
        ) from error
