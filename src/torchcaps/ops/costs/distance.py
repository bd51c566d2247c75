"""FLOPs of distance routing, whoever meets the votes: of what makes them, and what follows them."""

from torchcaps.ops.costs.base import sizes_of
from torchcaps.ops.fused.distance_tiles import Given
from torchcaps.ops.operators import Asked


def forward(given: Given, passes: int = 2) -> int:
    """Count votes made once at first and `passes` times in every later iteration; they are summed
    in all, and in the later ones measured, and summed for the slopes."""
    size, updates = sizes_of(given.votes), given.how.iterations - 1
    agreements = 1 + (1 + given.how.with_slopes) * updates
    return (1 + passes * updates) * size.products + agreements * size.agreement


def backward(asked: Asked[Given], at_once: bool = False) -> int:
    """Count one iteration after the other, or the gradients of all at once."""
    size, needs = sizes_of(asked.given.votes), asked.needs
    (sums, slopes, _), of_couplings = asked.saved, asked.gradients[-1]
    added = any(needs[:5])
    detach = asked.given.how.detach
    every = added and detach == "none"
    # In how many iterations distances are measured again, and in how many votes have a gradient.
    goes_back = detach != "iterations" and (every or any(needs[5:]))
    measured = len(sums) - 1 if goes_back else 0
    mixed = len(sums) if every else int(added)
    made, met = max(measured, mixed) + mixed * (needs[0] + needs[1]), measured + mixed
    if at_once and of_couplings is None:
        # Once for couplings, where these are not equal, and once for gradients.
        made = measured + added * ((len(sums) > 1) + 1 + needs[0] + needs[1])
        met = measured + added * (2 * mixed - 1)
    # Gradients of couplings ask for votes once more.
    recorded = 0 if of_couplings is None or not len(slopes) else len(of_couplings)
    return (made + min(measured, recorded)) * size.products + met * size.agreement
