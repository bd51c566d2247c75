"""How many levels couplings need [renzulli2025] B.3: the fewest at which accuracy does not fall.

Departures: none.
Ambiguities:
1. The paper does not say what counts as no fall, or by which images: here by 0.1 points of accuracy
   at most, on images that the caller chooses, which should be validation images.
2. A number for each layer is found from one for all: each layer in turn, from below, takes the
   fewest levels at which the accuracy still holds, the others as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torchcaps._checks import check_count, check_number

# From the coarsest grid to a step of 1/128, those of the paper among them.
GRIDS = (2, 3, 4, 5, 6, 8, 11, 16, 21, 33, 65, 129)
TOLERANCE = 0.001


@dataclass(frozen=True)
class ChosenLevels:
    """Levels for each layer, and every accuracy that was looked at on the way."""

    levels: tuple[int, ...]
    holds: bool  # whether accuracy holds at them; else they are the finest grid
    plain: float
    tried: tuple[tuple[tuple[int, ...], float], ...]


def choose_levels(
    accuracy: Callable[[tuple[int, ...] | None], float],
    *,
    layers: int,
    each: bool = False,
    grids: Sequence[int] = GRIDS,
    tolerance: float = TOLERANCE,
) -> ChosenLevels:
    """Give the fewest levels at which accuracy falls by no more than `tolerance`.

    Arguments:
        accuracy: of the network with so many levels in each layer; of None as it is.
        layers: how many routed layers there are.
        each: whether layers may have different numbers of levels.
        grids: numbers of levels to try, each at least 2.
        tolerance: the accepted fall, a share.

    >>> choose_levels(accuracy_at, layers=1)
    """
    so = "one level tells nothing apart"
    check_count("the least of the levels to try", min(grids, default=0), least=2, so=so)
    # NaN is no share either.
    check_number("tolerance", tolerance, so="accuracy may fall by so much, for example 0.001")
    check_count("layers", layers, so="without a routed layer there is no coupling to quantise")
    plain = _share(accuracy(None), None)
    tried: dict[tuple[int, ...], float] = {}

    def holds(levels: tuple[int, ...]) -> bool:
        if levels not in tried:
            tried[levels] = _share(accuracy(levels), levels)
        # A fall of the tolerance itself is allowed, whichever way its last bit was rounded.
        return tried[levels] >= plain - tolerance - 1e-9

    in_order = sorted(set(grids))
    common = next((k for k in in_order if holds((k,) * layers)), None)
    chosen = (in_order[-1] if common is None else common,) * layers
    if each and layers > 1 and common is not None:
        for layer in range(layers):
            for k in in_order:
                fewer = (*chosen[:layer], k, *chosen[layer + 1 :])
                if k >= chosen[layer] or holds(fewer):
                    chosen = fewer
                    break
    return ChosenLevels(chosen, common is not None, plain, tuple(tried.items()))


def _share(accuracy: float, levels: tuple[int, ...] | None) -> float:
    """Refuse NaN, with which no grid holds, and which would choose the finest."""
    of = "without levels" if levels is None else f"of {' and '.join(map(str, levels))} levels"
    check_number(f"the accuracy {of}", accuracy, so="it is a share of images; is there any image?")
    return accuracy
