"""Couplings that somebody else decides: `couple`, a function on the couplings of the last
iteration, after which the parents are made anew.

So couplings are quantised [renzulli2025] §3.1.2, or exchanged to see what a network owes to them.
"""

import torch
from torch import Tensor

from torchcaps._checks import check_finite, check_shape
from torchcaps.errors import TorchcapsError
from torchcaps.ops.checks import has_values
from torchcaps.types import Couple, Keep


def replaced(couple: Couple | None, coupling: Tensor, *, negative: bool = True) -> Tensor | None:
    """Give what `couple` makes of couplings [*b, i, j], in their dtype; None where nothing changes,
    so that the parents keep every bit. With negative=False couplings are weights."""
    if couple is None:
        return None
    if not callable(couple):
        raise TorchcapsError(
            f"couple must be a function on couplings, but came as a {type(couple).__name__}; write "
            f"couple=lambda couplings: …."
        )
    # Whoever writes into the couplings would change what is compared with and recorded.
    watched = not (torch.compiler.is_compiling() or coupling.is_inference())
    version = coupling._version if watched else 0
    made = couple(coupling)
    if watched and coupling._version != version:
        raise TorchcapsError(
            "couple must return other couplings and leave those it was given as they are, but it "
            "wrote into them; begin it with couplings = couplings.clone()."
        )
    if made is coupling:
        return None
    so = "does it lack its return? For one matrix for all images use .expand_as(couplings)"
    check_shape("the result of couple", made, coupling.shape, so)
    made = made.to(coupling)
    if has_values(made) and has_values(coupling):
        _check_values(made, negative)
        if not (made.requires_grad or coupling.requires_grad) and torch.equal(made, coupling):
            return None
    return made


def coupled(couple: Couple | None, coupling: Tensor, *, negative: bool = True) -> Tensor:
    """Give the couplings by which parents are made."""
    made = replaced(couple, coupling, negative=negative)
    return coupling if made is None else made


def coupled_or_even(
    couple: Couple | None, coupling: Tensor | None, votes: Tensor, share: float
) -> Tensor | None:
    """Apply `couple` to couplings that are None as long as each is `share`."""
    if couple is None:
        return coupling
    known = votes.new_full(votes.shape[:-1], share) if coupling is None else coupling
    made = replaced(couple, known)
    return coupling if made is None else made


def recorded(keep: Keep, couple: Couple | None) -> Keep:
    """Give what a form without stored votes has to record, so that `couple` sees the last
    couplings."""
    return "last" if couple is not None and keep == "none" else keep


def _check_values(made: Tensor, negative: bool) -> None:
    check_finite("the results of couple", made, "did it divide by a sum that is zero?")
    if not negative and bool((made < 0).any()):
        raise TorchcapsError(
            f"this routing weighs votes by its couplings, so couple must return none below zero, "
            f"but one is {made.min().item():.3g}; use .clamp(min=0)."
        )
