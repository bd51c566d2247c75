"""What routing by agreement asks of a tile of votes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from torchcaps.ops.fused.tiles import Tile, TiledVotes, VoteGradients

Term = tuple[Tensor, Tensor]


class MadeTile:
    """The votes of a tile, and what is asked of them.

    along(x)     ⟨û_ij, x_j⟩                           [t, j, p, b]
    add_mixed(a) Σ_i a_ij û_ij                         to [j, d, b]
    add(terms)   the gradient Σ a_ij x_j of û_ij, handed on to children and weights
    """

    def __init__(self, votes: TiledVotes, tile: Tile):
        self._tile = tile
        self._tiled = votes
        self._seen = votes.seen(tile)
        self._votes = votes.votes(tile, self._seen)  # [t, j, d, p, b]

    def along(self, parents: Tensor) -> Tensor:
        return self._tiled.along(self._votes, parents)

    def add_mixed(self, to: Tensor, amount: Tensor) -> None:
        if self._votes.shape[0] == self._votes.shape[3] == 1:  # One child: in one pass, not three.
            to.addcmul_(amount[0], self._votes[0, :, :, 0])
        else:
            to += self._tiled.times(self._votes, amount.unsqueeze(2)).sum((0, 3))

    def add(self, found: VoteGradients, terms: Sequence[Term]) -> None:
        """Answer the last question: the memory of the votes takes their gradient."""
        (amount, parents), *rest = terms
        gradient = torch.mul(amount.unsqueeze(2), parents.unsqueeze(-2), out=self._votes)
        for amount, parents in rest:
            gradient.addcmul_(amount.unsqueeze(2), parents.unsqueeze(-2))
        found.add(self._tile, self._seen, gradient)
