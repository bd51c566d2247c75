"""FLOPs of EM routing, whoever meets the votes: of the products that make all votes once."""

from collections.abc import Sequence

__all__ = ["distances", "distances_backward", "moments", "moments_backward"]


def moments(products: int) -> int:
    """Votes are made for the mean, and for the variance about it."""
    return 2 * products


def moments_backward(products: int, needs: Sequence[bool]) -> int:
    """Votes once more, and gradients of poses and weights."""
    return (1 + needs[0] + needs[1]) * products


def distances(products: int) -> int:
    return products


def distances_backward(products: int, needs: Sequence[bool], passes: int = 1) -> int:
    """The same, where parents and what votes are made of may take a pass each."""
    return (passes + needs[0] + needs[1]) * products
