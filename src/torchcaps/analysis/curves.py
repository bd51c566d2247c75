"""Training curves in a number each [tsai2020] §5, §6, [peer2022] Fig. 2.

jitter    mean |a_{t+1} − 2 a_t + a_{t−1}| of the accuracies a_t of successive epochs
onset     the first step whose accuracy is more than 10 points above chance
time to A the first step whose accuracy is at least A
area      mean of the curve over all steps, straight between its points

Departures: none; the definitions are ours.
Ambiguities: jitter is that of the epochs before the first drop of the learning rate, which the
caller cuts off: a drop is a bend of its own.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from torchcaps.errors import TorchcapsError


def jitter(accuracy: Sequence[float]) -> float | None:
    """Say how much accuracy goes up and down from epoch to epoch; None of fewer than three epochs.

    Arguments:
        accuracy: of successive epochs.

    >>> jitter([0.5, 0.75, 0.5])
    0.5
    """
    _check_finite(accuracy)
    bends = [
        abs(a - 2 * b + c) for a, b, c in zip(accuracy, accuracy[1:], accuracy[2:], strict=False)
    ]
    return sum(bends) / len(bends) if bends else None


def onset(steps: Sequence[int], accuracy: Sequence[float], *, chance: float) -> int | None:
    """Give the first step above chance by more than 10 points; None where learning never begins.

    Arguments:
        steps: when each accuracy was had.
        accuracy: shares from 0 to 1.
        chance: the accuracy of a guess.

    >>> onset([0, 10, 20], [0.1, 0.15, 0.5], chance=0.1)
    20
    """
    _check(steps, accuracy)
    pairs = zip(steps, accuracy, strict=True)
    return next((step for step, value in pairs if value > chance + 0.1), None)


def time_to(level: float, steps: Sequence[int], accuracy: Sequence[float]) -> int | None:
    """Give the first step with an accuracy of `level` or more; None where it is never reached.

    Arguments:
        level: the accuracy to reach.
        steps: at which steps accuracy was measured, rising.
        accuracy: one value a step.

    >>> time_to(0.5, [0, 10, 20], [0.1, 0.5, 0.9])
    10
    """
    _check(steps, accuracy)
    return next((step for step, value in zip(steps, accuracy, strict=True) if value >= level), None)


def area(steps: Sequence[int], accuracy: Sequence[float]) -> float:
    """Give the mean accuracy over all steps; of one point its accuracy.

    Arguments:
        steps: at which steps accuracy was measured, rising.
        accuracy: one value a step.

    >>> area([0, 1, 2], [0.0, 0.5, 1.0])
    0.5
    """
    _check(steps, accuracy)
    if len(steps) == 1:
        return accuracy[0]
    points = pairwise(zip(steps, accuracy, strict=True))
    total = sum((t - s) * (a + b) / 2 for (s, a), (t, b) in points)
    return total / (steps[-1] - steps[0])


def _check(steps: Sequence[int], accuracy: Sequence[float]) -> None:
    if not steps or len(steps) != len(accuracy) or any(t <= s for s, t in pairwise(steps)):
        raise TorchcapsError(
            f"a curve has one accuracy for each step, and steps that grow, but came with "
            f"{len(steps)} steps and {len(accuracy)} accuracies"
            f"{', out of order' if len(steps) == len(accuracy) and steps else ''}."
        )
    _check_finite(accuracy)


def _check_finite(accuracy: Sequence[float]) -> None:
    if not all(map(math.isfinite, accuracy)):
        raise TorchcapsError(
            "a curve is made of numbers, but one of its accuracies is NaN or infinite; leave that "
            "step out, or look at why it was not measured."
        )
