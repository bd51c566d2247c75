"""FLOPs of distance routing, whoever meets the votes: of what makes them, and what follows them."""

from torchcaps.ops.fused.distance_tiles import Given
from torchcaps.ops.operators import Asked

__all__ = ["back", "forward"]


def forward(given: Given, products: int, agreement: int, passes: int) -> int:
    """Votes made once at first and `passes` times in every later iteration; they are summed in
    all, and in the later ones measured, and summed for the slopes."""
    updates = given.how.iterations - 1
    agreements = 1 + (1 + given.how.with_slopes) * updates
    return (1 + passes * updates) * products + agreements * agreement


def back(asked: Asked[Given]) -> tuple[int, int, int]:
    """How many iterations a backward pass measures again, in how many votes get a gradient, and how
    many gradients of couplings ask for votes once more."""
    needs, (sums, slopes, _), of_couplings = asked.needs, asked.saved, asked.gradients[-1]
    added = any(needs[:5])
    every = added and asked.given.how.detach == "none"
    measured = len(sums) - 1 if every or any(needs[5:]) else 0
    recorded = 0 if of_couplings is None or not len(slopes) else len(of_couplings)
    return measured, len(sums) if every else int(added), min(measured, recorded)
