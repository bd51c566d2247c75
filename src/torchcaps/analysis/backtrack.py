"""The part of a tree that leads to the predicted class [renzulli2025] Figs. 6 and 15–20.

From the predicted class downwards, a child belongs to the tree if it is coupled to a parent that
does more strongly than an even split over its J parents would have it:
    child i is in  ⇔  there is a parent j in with c_ij > 1 / J

Departures: none.
Ambiguities: couplings of exactly 1 / J, as before any routing, lead nowhere.
"""

from itertools import pairwise

import torch
from torch import Tensor

from torchcaps.analysis.trace import check_trace, image_coupling
from torchcaps.errors import TorchcapsError
from torchcaps.types import Trace

__all__ = ["backtracked", "is_chain"]

# An even split in float32 may lie that far above 1 / J.
ROUNDING = 1e-6


def is_chain(trace: Trace) -> bool:
    """Whether the parents of each layer are the children of the next, as far as numbers tell."""
    sizes = [image_coupling(layer).shape[1:] for layer in trace]
    return all(a[1] == b[0] for a, b in pairwise(sizes))


def backtracked(trace: Trace, predicted: int, *, index: int = 0) -> list[Tensor]:
    """Which edges of each routed layer lead to the predicted class, bool [i, j], from below.

    Arguments:
        trace: of a network whose layers are all dense.
        predicted: the class.
        index: which image of the trace.

    >>> backtracked(out.trace, int(out.scores[0].argmax()))
    """
    check_trace(trace)
    if not is_chain(trace):
        raise TorchcapsError(
            "a tree needs layers that lead to each other, but one layer here has more or fewer "
            "parents than the next has children; DeepCaps, for example, joins two layers into one."
        )
    edges: list[Tensor] = []
    for layer in reversed(trace):
        coupling = image_coupling(layer)[index]  # [i, j]
        parents = coupling.shape[1]
        if edges:
            inside = edges[0].any(1)
        elif 0 <= predicted < parents:
            inside = torch.arange(parents) == predicted
        else:
            raise TorchcapsError(
                f"the tree of a class begins at one of the {parents} parents of {layer.name}, but "
                f"predicted is {predicted}."
            )
        edges.insert(0, (coupling > 1 / parents + ROUNDING) & inside)
    return edges
