"""FLOPs of EM routing, whoever meets the votes: of the products that make them."""

from typing import Any

from torchcaps.ops.costs.base import sizes_of
from torchcaps.ops.fused.tiles import MadeOf
from torchcaps.ops.operators import Asked


def moments(given: Any) -> int:
    """Count votes that are made for the mean, and for the variance about it."""
    return 2 * distances(given)


def distances(given: Any) -> int:
    return sizes_of(votes_of(given)).products


def backward(asked: Asked[Any]) -> int:
    """Count what either form takes: votes once more, and gradients of poses and weights."""
    *_, pose, weight, _, _ = asked.needs
    return (1 + pose + weight) * distances(asked.given)


def votes_of(given: Any) -> MadeOf:
    """Give the last of all that an operator is given."""
    return given if isinstance(given, MadeOf) else votes_of(given[-1])
