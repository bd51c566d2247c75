"""Sums over children whose couplings are a softmax over parents, and their gradients, by Triton.

    c_ij = softmax_j(⟨û_ij, A_j⟩ + prior_ij),   s_j = Σ_i c_ij û_ij

Backwards from γ_j, the gradient of s_j, and κ_ij, that of c_ij where it was recorded,

    h_ij = ⟨û_ij, γ_j⟩ + κ_ij,   ∂b_ij = c_ij (h_ij − Σ_k c_ik h_ik),   ∂A_j = Σ_i ∂b_ij û_ij
    ∂û_ij = c_ij γ_j + ∂b_ij A_j
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.ops.triton import votes as tiles
from torchcaps.ops.triton.votes import Votes, shared_out

__all__ = ["Found", "Mixing", "Terms"]

# M, Z and H of the kernels.
Found = tuple[Tensor | None, ...]


class Terms(NamedTuple):
    """Of which iterations votes and prior have a gradient."""

    first: int = 0
    first_mixed: int = 0  # from here on γ reaches the votes
    first_recorded: int = 0  # from here on couplings have a gradient of their own
    first_agreed: int = 0  # from here on there are parents to agree with
    uniform: float = 0.0  # the couplings of the first iteration, or none
    agrees: bool = True
    to_logits: bool = True


@dataclass
class Mixing:
    """The kernels, for one vote map."""

    votes: Votes
    prior: Tensor | None = None
    leaky: bool = False

    def __post_init__(self) -> None:
        # Not before: who has no Triton can import everything else.
        from torchcaps.ops.triton import mixing_kernels

        self.kernels = mixing_kernels
        self.is_whole = self.votes.tiles == 1
        self.prior = None if self.prior is None else self.prior.contiguous()

    def found(self, *lead: int) -> Found:
        """Places for M, Z and H, [*lead, b, i]; none where every tile has all parents."""
        if self.is_whole:
            return None, None, None
        shape = self.votes.shape
        most, total, mean = self.votes.empty(3, *lead, shape.batch, shape.children)
        return most, total, mean

    def total(self) -> Tensor:
        """Partial sums of Σ_i W_ij u_i; where all samples have the same children, those
        that share weights are summed first."""
        votes, shape = self.votes, self.votes.shape
        pose, children, multiplied = votes.pose, shape.children, votes.multiplied
        if votes.window is None and shape.types < children:
            pose = pose.unflatten(1, (-1, shape.types)).sum(1, dtype=torch.float32)
            children, multiplied = shape.types, torch.float32
        splits, size = shared_out(children, votes.lanes * votes.tiles, tiles.CHILDREN)
        partial = votes.parents(splits)
        made_of = (pose, votes.weight, None, None, votes.child_id)
        votes.run(
            self.kernels.mix,
            splits * votes.tiles * votes.lanes,
            *(*made_of, *(None,) * 7, partial, None),
            *(*votes.sizes(children), size, 0),
            **votes.constants(multiplied),
            LEAKY=self.leaky,
            WHOLE=True,
            UNIFORM=True,
        )
        return partial

    def moved(self) -> Tensor | None:
        """What vote bias and coordinates add to Σ_i û_ij, [j, d]."""
        votes, moved = self.votes, None
        if votes.vote_bias is not None:
            moved = votes.shape.children * votes.vote_bias
        if votes.coordinates is not None:
            places = votes.coordinates.sum(0).expand(votes.shape.parents, -1).contiguous()
            moved = places if moved is None else moved + places
        return moved

    def normalise(
        self,
        t: int,
        agreed: Tensor,
        found: Found,
        of_sum: Tensor | None = None,
        of_coupling: Tensor | None = None,
    ) -> None:
        """M, Z and with γ also H of an iteration."""
        if self.is_whole:
            return
        votes = self.votes
        splits, size = votes.by_lane(1)
        votes.run(
            self.kernels.normalise,
            splits * votes.lanes,
            *(*votes.made_of(), self.prior, agreed, of_sum, of_coupling, *found),
            *(*votes.sizes(), size, t),
            **votes.constants(),
            LEAKY=self.leaky,
        )

    def mix(
        self,
        t: int,
        agreed: Tensor,
        found: Found,
        of_sum: Tensor | None = None,
        of_coupling: Tensor | None = None,
        coupling: Tensor | None = None,
    ) -> Tensor:
        """Partial sums of Σ_i c_ij û_ij; with γ of Σ_i ∂b_ij û_ij."""
        votes = self.votes
        splits, size = votes.by_lane(tiles.CHILDREN, votes.tiles)
        partial = votes.parents(splits)
        votes.run(
            self.kernels.mix,
            splits * votes.tiles * votes.lanes,
            *(*votes.made_of(), self.prior, agreed, of_sum, of_coupling, *found),
            *(partial, coupling),
            *(*votes.sizes(), size, t),
            **votes.constants(),
            LEAKY=self.leaky,
            WHOLE=self.is_whole,
            UNIFORM=False,
        )
        return partial

    def differentiate(
        self,
        terms: Terms,
        agreed: Tensor,
        of_sums: Tensor,
        of_couplings: Tensor | None,
        found: Found,
        needs: Sequence[bool],
    ) -> list[Tensor | None]:
        """Gradients of pose, weight, vote bias, coordinates and prior."""
        votes, shape = self.votes, self.votes.shape
        splits, size = votes.by_child()
        gradients = votes.gradients(needs[:4])
        # Of a term that does not go through couplings nothing is written.
        of_prior = None if self.prior is None or not needs[4] else torch.zeros_like(self.prior)
        numbers: tuple[Any, ...] = (terms.first, len(agreed), *terms[1:5])
        for tile in range(votes.tiles):
            votes.run(
                self.kernels.differentiate,
                splits * shape.types,
                *(*votes.made_of(), self.prior, agreed, of_sums, of_couplings, *found),
                *(*gradients, of_prior if terms.to_logits else None),
                *(*votes.sizes(), size, tile * votes.blocks.parents, *numbers),
                **votes.constants(),
                LEAKY=self.leaky,
                WHOLE=self.is_whole,
                UNIFORM=terms.uniform != 0,
                ASKS=terms.first < len(agreed),
                TO_LOGITS=terms.to_logits,
                AGREES=terms.agrees,
                ADDS=tile > 0,
            )
        return [*votes.gathered(gradients), of_prior]
