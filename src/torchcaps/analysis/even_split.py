"""What an even split is, for couplings that sum to one over parents, children, or all positions.

    over the J parents of a child        1 / J
    over the I children of a parent      1 / I
    over the parents of all P_i windows that see child i, J each        1 / (P_i J)

Where nothing says over what couplings sum to one, as with a learned prior, the first is meant.
"""

import torch
from torch import Tensor

from torchcaps.analysis.trace import finite_coupling, last_coupling
from torchcaps.types import Couple, LayerTrace

# An even split in float32 lies that near to it, as a share of it; in half precision as near as
# its numbers lie to each other.
ROUNDING = 1e-6


def even_split(layer: LayerTrace) -> Tensor:
    """Give couplings under an even split, float64: [1, 1], or [p, i, 1] where windows compete."""
    return 1 / _parts(layer)


def comparable_coupling(layer: LayerTrace) -> Tensor:
    """Give couplings in float64, scaled so that an even split is 1 / J."""
    coupling, parts = finite_coupling(layer), _parts(layer)
    n = coupling.shape[-1]
    # A level of a grid may begin at 1 / J, and what was rounded lies on either side of it.
    dtype = last_coupling(layer).dtype
    rounding = max(ROUNDING, torch.finfo(dtype).eps if dtype.is_floating_point else 0.0)
    even = (coupling * parts - 1).abs() <= rounding
    return torch.where(even, 1 / n, coupling * (parts / n))


def _parts(layer: LayerTrace) -> Tensor:
    """Say into how many parts a child, or the attention of a parent, is split."""
    children, parents = last_coupling(layer).shape[-2:]
    if layer.normalised_over == "children":
        return torch.full((1, 1), children, dtype=torch.float64)
    if layer.normalised_over == "parents_and_positions" and layer.window is not None:
        child = layer.window.child_id()
        windows = child.flatten().bincount()[child]  # [p, i]
        return (parents * windows.double()).unsqueeze(-1)
    return torch.full((1, 1), parents, dtype=torch.float64)


def evenly(layer: LayerTrace) -> Couple:
    """Make couplings that prefer no parent, as if a layer did not route: their means over
    everything on which they sum to one, the parents of a child; those of all windows that see it,
    where windows compete for it; of attention, the children of a parent.

    >>> model(images, couple={layer.name: evenly(layer) for layer in out.trace})
    """
    if layer.normalised_over == "parents_and_positions" and layer.window is not None:
        return _over_windows(layer.window.child_id(torch.device("cpu")).flatten())
    axis = -2 if layer.normalised_over == "children" else -1
    return lambda coupling: coupling.mean(axis, keepdim=True).expand_as(coupling)


def _over_windows(child: Tensor) -> Couple:
    """Share among all windows that see a child; `child` [p · i] is the one in each slot."""
    seen_by = torch.bincount(child)

    def couple(coupling: Tensor) -> Tensor:  # [k, p, i, j]
        index = child.to(coupling.device)
        of_slots = coupling.mean(-1).flatten(1)
        sums = of_slots.new_zeros(len(of_slots), len(seen_by)).index_add_(1, index, of_slots)
        means = (sums / seen_by.to(sums))[:, index]
        return means.view(*coupling.shape[:-1], 1).expand_as(coupling)

    return couple
