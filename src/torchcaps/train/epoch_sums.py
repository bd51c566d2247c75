"""What was logged so far in an epoch. Lightning keeps it to itself and forgets it at a stop."""

import lightning
import torch
from torch import Tensor

# By name: the sum over the images that were logged, and their number.
Sums = dict[str, tuple[Tensor, Tensor]]


def so_far(trainer: lightning.Trainer) -> Sums:
    """This rank's sums of all that the steps logged as a mean over the epoch."""
    return {
        name: (metric.value.clone(), metric.cumulated_batch_size.clone())
        for name, metric in _results(trainer).valid_items()
    }


def put(trainer: lightning.Trainer, sums: Sums) -> None:
    """Take `sums` in place of what was logged so far; what they do not hold was not logged."""
    nothing = torch.tensor(0.0), torch.tensor(0)
    for name, metric in _results(trainer).valid_items():
        value, count = sums.get(name, nothing)
        # Copies: Lightning adds the ranks' counts up in place.
        metric.value = value.to(metric.value, copy=True)
        metric.cumulated_batch_size = count.to(metric.cumulated_batch_size, copy=True)
        # The mean of what was there before.
        metric._computed = None


def over_ranks(trainer: lightning.Trainer) -> Sums:
    """The sums of all ranks together. Lightning's own synchronisation means whole numbers, and
    rounds: it is wrong for shares that are not even."""
    reduce = trainer.strategy.reduce
    return {
        name: (reduce(value, reduce_op="sum"), reduce(count, reduce_op="sum"))
        for name, (value, count) in so_far(trainer).items()
    }


def add(one: Sums, other: Sums) -> Sums:
    """Add the sums of two stretches."""
    return {
        name: (value + other[name][0].to(value), count + other[name][1].to(count))
        for name, (value, count) in one.items()
    }


def _results(trainer: lightning.Trainer):  # type: ignore[no-untyped-def]
    results = trainer._results
    assert results is not None
    return results
