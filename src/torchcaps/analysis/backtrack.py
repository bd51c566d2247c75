"""The part of a tree that leads to the predicted class [renzulli2025] Figs. 6 and 15–20.

From the predicted class downwards, a child belongs to the tree if it is coupled to a parent that
does more strongly than an even split over its J parents would have it:
    child i is in  ⇔  there is a parent j in with c_ij > 1 / J
Through windows the J parents are those of one window, and a child is in that any window leads to.
The size of a tree is the number of its capsules with an in-degree of one or more. Trees of a class
and of a whole test set (Figs. 15, 16, 18 and 19) are those of a `mean_trace`.

Departures: none.
Ambiguities: couplings of exactly 1 / J, as before any routing, lead nowhere. On a grid they are
where the grid puts them: of 16 parents 1 / 16 becomes 0.1 on eleven levels, and leads everywhere.
The paper does not say where the tree of a whole test set begins; give one class, or all of them.
Couplings that sum to one over children, or over all positions, are first multiplied by what makes
an even split 1 / J.
"""

import math
import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate, one_hot

from torchcaps.analysis.even_split import comparable_coupling
from torchcaps.analysis.trace import (
    check_children,
    check_parents_are_classes,
    check_trace,
    child_of,
    class_coupling,
    finite_coupling,
    image_coupling,
)
from torchcaps.errors import TorchcapsError
from torchcaps.types import LayerTrace, Trace

# An even split in float32 may lie that far above 1 / J.
ROUNDING = 1e-6


def is_chain(trace: Trace) -> bool:
    """Say whether each layer has as many parents as the next has children."""
    return all(_sizes(below)[1] == _sizes(above)[0] for below, above in pairwise(trace))


def _sizes(layer: LayerTrace) -> tuple[int, int]:
    """Count the children and parents of a layer, of all windows."""
    if layer.window is None:
        _, children, parents = image_coupling(layer).shape
        return children, parents
    coupling = finite_coupling(layer)
    return math.prod(layer.window.child_grid), coupling.shape[-3] * coupling.shape[-1]


def backtracked(trace: Trace, predicted: int | Sequence[int], *, index: int = 0) -> list[Tensor]:
    """Say which edges of each routed layer lead to the predicted class, bool [i, j], from below.

    Through windows bool [p, i, j]; `child_of` names the child in a slot, and the parents of window
    p are p * J to p * J + J - 1.

    Arguments:
        trace: of a network whose layers lead to each other.
        predicted: the class; more exactly a parent of the last layer, which must have one a class.
            Of several the trees are joined.
        index: which image of the trace.

    >>> backtracked(out.trace, int(out.scores[0].argmax()))
    """
    check_chain(trace)
    _, parents = _sizes(trace[-1])
    tops = _classes(predicted)
    if not tops or not all(0 <= each < parents for each in tops):
        raise TorchcapsError(
            f"the tree of a class begins at one of the {parents} parents of {trace[-1].name}, but "
            f"predicted is {predicted}."
        )
    images = len(comparable_coupling(trace[-1]))
    if not 0 <= index < images:
        raise TorchcapsError(
            f"the trace has {images} images, the first with index 0, and none has {index}."
        )
    inside = torch.zeros(1, parents, dtype=torch.bool)
    inside[0, tops] = True
    return [edges[0] for edges in _edges(trace, inside, slice(index, index + 1))]


def _classes(predicted: Any) -> list[int]:
    """List one class or several; nothing where they are no whole numbers."""
    if isinstance(predicted, Tensor):
        predicted = predicted.tolist()
    is_several = isinstance(predicted, Sequence) and not isinstance(predicted, str)
    each: list[Any] = [*predicted] if is_several else [predicted]
    try:
        return [operator.index(one) for one in each]
    except TypeError:
        return []


def tree_size(trace: Trace, predicted: Tensor, *, n_classes: int) -> Tensor:
    """Say how many capsules with a child the tree of each image has, int64 [k].

    Arguments:
        trace: of k images, of a network whose layers lead to each other.
        predicted: the class of each image, int64 [k].
        n_classes: how many classes the network scores.

    >>> tree_size(out.trace, out.scores.argmax(-1), n_classes=10).shape
    """
    check_chain(trace)
    check_parents_are_classes(trace, n_classes)
    # It refuses classes that are none of theirs.
    class_coupling(trace, predicted)
    inside = one_hot(predicted.detach().cpu(), n_classes).bool()
    every = _edges(trace, inside, slice(None))
    return torch.stack([edges.any(-2).flatten(1).sum(-1) for edges in every]).sum(0)


def check_chain(trace: Trace) -> None:
    """Refuse layers that do not lead to each other."""
    check_trace(trace)
    if not is_chain(trace):
        raise TorchcapsError(
            "a tree needs layers that lead to each other, but one layer here has more or fewer "
            "parents than the next has children; DeepCaps, for example, joins two layers into one."
        )
    for layer in trace:
        check_children(layer)


def _edges(trace: Trace, inside: Tensor, some: slice) -> list[Tensor]:
    """Return the edges that lead to the classes inside, [k, j]: [k, i, j] or [k, p, i, j]."""
    edges: list[Tensor] = []
    for layer in reversed(trace):
        coupling = comparable_coupling(layer)[some]
        n = coupling.shape[-1]
        above = inside.unsqueeze(1) if layer.window is None else inside.unflatten(1, (-1, 1, n))
        edges.insert(0, (coupling > 1 / n + ROUNDING) & above)
        inside = children_of(layer, edges[0])
    return edges


def children_of(layer: LayerTrace, edges: Tensor) -> Tensor:
    """Say which children edges [k, i, j] or [k, p, i, j] leave, bool [k, n]."""
    leaves = edges.any(-1).flatten(1).long()
    child = child_of((layer,))[layer.name].cpu().flatten()
    none = leaves.new_zeros(len(leaves), _sizes(layer)[0])
    return none.index_add(1, child, leaves) > 0


def tree_pixels(trace: Trace, predicted: int, *, size: tuple[int, int], index: int = 0) -> Tensor:
    """Say where in an image the tree of a class has its leaves, [height, width].

    The value is the share of types that belong to the tree at a position of the lowest capsules,
    stretched bilinearly to the image.

    Arguments:
        trace: of a network whose lowest capsules lie on a grid.
        predicted: the class; more exactly a parent of the last layer, which must have one a class.
        size: (height, width) of the image.
        index: which image of the trace.

    >>> tree_pixels(out.trace, int(out.scores[0].argmax()), size=(28, 28))
    """
    lowest, *_ = backtracked(trace, predicted, index=index)
    layer = trace[0]
    grid = layer.child_grid if layer.window is None else layer.window.child_grid
    if grid is None or grid[0] * grid[1] == 1:
        where = "on none" if grid is None else "at one position"
        raise TorchcapsError(
            f"leaves are shown in an image where capsules lie on a grid, but those below "
            f"{layer.name} lie {where}; take a network whose first layer looks at a map."
        )
    leaves = children_of(layer, lowest[None])[0].double().unflatten(0, grid).mean(-1)  # [h, w]
    stretched = interpolate(leaves[None, None], size=size, mode="bilinear", align_corners=False)
    return stretched[0, 0]
