"""Children that several windows see: one child lies in a slot of each of them."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError

# Who shares out a child: the parents of each window for themselves, or those of all windows.
Compete = Literal["window", "all"]


def check_child_id(child_id: Tensor | None, votes: Tensor, compete: Compete) -> None:
    if (child_id is None) == (compete == "all"):
        raise TorchcapsError(
            'compete="all" needs child_id [window, slot] to know which slots hold one child, and '
            'compete="window" has no use for it.'
        )
    if child_id is None:
        return
    if child_id.dtype != torch.int64 or votes.ndim < 4 or child_id.shape != votes.shape[-4:-2]:
        raise TorchcapsError(
            f"child_id must be int64 [window, slot] for votes [*batch, window, slot, parent, "
            f"pose], but came as {child_id.dtype} {list(child_id.shape)} with votes "
            f"{list(votes.shape)}."
        )


def number_children(child_id: Tensor) -> Tensor:
    """Number the same children 0, 1, … without gaps, fewer than there are slots: windows with a
    stride beyond their kernel do not see every child."""
    names, order = child_id.flatten().sort()
    number = (names.diff(prepend=names[:1]) != 0).cumsum(0)
    return torch.empty_like(number).scatter(0, order, number).view_as(child_id)


def windows_of_children(child_id: Tensor, like: Tensor) -> Tensor:
    """Say how many windows see the child of each slot, [p, i], in the type of `like`."""
    flat = child_id.flatten()
    ones = like.new_ones(len(flat))
    return torch.zeros_like(ones).scatter_add(0, flat, ones)[child_id]


def softmax_over_windows(child_id: Tensor) -> Callable[[Tensor], Tensor]:
    """Give log-softmax of [*b, p, i, j] over every parent of every window that sees the child."""
    flat = child_id.flatten()  # [p * i]

    def normalise(logits: Tensor) -> Tensor:
        rows = logits.flatten(-3, -2)  # [*b, p * i, j]
        lead = rows.shape[:-2]
        index = flat.expand(*lead, len(flat))
        # The greatest logit of a child is a shift: it cancels, so it needs no gradient.
        top = rows.detach().amax(-1)
        # Children are fewer than slots, so a row as long as the slots has room for all of them.
        top = torch.full_like(top, -math.inf).scatter_reduce(-1, index, top, "amax")[..., flat]
        mass = (rows - top.unsqueeze(-1)).exp().sum(-1)
        total = torch.zeros_like(mass).scatter_add(-1, index, mass)[..., flat]
        log_r = rows - (top + total.log()).unsqueeze(-1)
        return log_r.reshape(logits.shape)

    return normalise
