"""Training steps before which something happens, and runs that are stopped by it."""

import importlib
import os
from contextlib import contextmanager

import pytest

from torchcaps.errors import Interrupted
from torchcaps.train import fit
from torchcaps.train.loop import Loop

# The package hides its module `fit` behind the function.
FIT = importlib.import_module("torchcaps.train.fit")


def before_steps(act):
    """A training step that calls `act` with its loop first."""
    step = Loop.training_step

    def training_step(self, batch, batch_idx):
        act(self)
        return step(self, batch, batch_idx)

    return training_step


def step_that(act, at):
    """A training step that calls `act` before step number `at` of the whole run."""
    return before_steps(lambda loop: act() if loop.global_step == at else None)


def raising(error):
    def act():
        raise error

    return act


@contextmanager
def ending(owner, name, instead, error=Interrupted, match=None):
    """With another method in its place, what is called within ends in an error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, instead)
        with pytest.raises(error, match=match):
            yield


def signalled(*numbers):
    def act():
        for number in numbers:
            os.kill(os.getpid(), number)

    return act


def by_single_steps(recipe, out):
    """A run of which each call is over after a step, and the next one takes it up again."""
    while True:
        try:
            return fit(recipe, out, time_budget=1e-6)
        except Interrupted:
            pass
