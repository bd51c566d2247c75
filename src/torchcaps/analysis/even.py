"""Couplings that prefer no parent: what a layer would use if it did not route."""

import torch
from torch import Tensor

from torchcaps.types import Couple, LayerTrace

__all__ = ["evenly"]


def evenly(layer: LayerTrace) -> Couple:
    """The means of the couplings of a layer over everything on which they sum to one: over the
    parents of a child; over those of all windows that see it, where windows compete for it; of
    attention, over the children of a parent.

    Arguments:
        layer: of a trace.

    >>> model(images, couple={layer.name: evenly(layer) for layer in out.trace})
    """
    if layer.normalised_over == "parents_and_positions" and layer.window is not None:
        return _over_windows(layer.window.child_id(torch.device("cpu")).flatten())
    axis = -2 if layer.normalised_over == "children" else -1
    return lambda coupling: coupling.mean(axis, keepdim=True).expand_as(coupling)


def _over_windows(child: Tensor) -> Couple:
    """`child` [p · i] is the child in each slot of each window, one after the other."""
    seen_by = torch.bincount(child)

    def couple(coupling: Tensor) -> Tensor:  # [k, p, i, j]
        index = child.to(coupling.device)
        of_slots = coupling.mean(-1).flatten(1)
        sums = of_slots.new_zeros(len(of_slots), len(seen_by)).index_add_(1, index, of_slots)
        means = (sums / seen_by.to(sums))[:, index]
        return means.view(*coupling.shape[:-1], 1).expand_as(coupling)

    return couple
