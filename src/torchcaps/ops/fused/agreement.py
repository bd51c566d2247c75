"""What routing by agreement asks of a tile of votes, in two ways of one interface.

    along(x)     ⟨û_ij, x_j⟩                           [t, j, p, b]
    add_mixed(a) Σ_i a_ij û_ij                         to [j, d, b]
    add(terms)   the gradient Σ a_ij x_j of û_ij, handed on to children and weights

`MadeTile` makes the votes. `FoldedTile` does not: with û_ij = W_ij u_i,

    ⟨û_ij, x_j⟩ = ⟨u_i, W_ijᵀ x_j⟩                 Σ_i a_ij û_ij = Σ_i W_ij (a_ij u_i)
    ∂u_i = Σ_j a_ij W_ijᵀ x_j                      ∂W_ij = x_j (a_ij u_i)ᵀ

so that number by number only children are multiplied, which are smaller than votes, and the rest
are products of matrices, two where there was one. Children that share weights share the products.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from torchcaps.ops.fused.tiles import Tile, TiledVotes, VoteGradients
from torchcaps.types import VoteMap

Term = tuple[Tensor, Tensor]


class MadeTile:
    """Meet the votes of a tile themselves."""

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


class FoldedTile:
    """Meet a tile by children [t, k, p, b] and by parents seen from them, W_ijᵀ x_j, [j, t, k, 1,
    b].

    Whatever is multiplied lies in the same memory, so that a tile of it stays in the cache.
    """

    def __init__(self, votes: TiledVotes, tile: Tile):
        self._tile = tile
        self._votes = votes
        self._seen = votes.seen(tile).squeeze(2)
        weight = votes.weight[tile.types].to(votes.dtype)  # [t, j, d, k]
        self._weight = weight.permute(0, 3, 1, 2).flatten(0, 1).transpose(0, 1)  # [j, t k, d]
        self._work = votes.scratch("work", votes.n_out, *self._seen.shape)
        # What the work space holds the children times of.
        self._amount: Tensor | None = None

    def along(self, parents: Tensor) -> Tensor:
        self._amount = None
        self._fold_times(parents, self._seen)
        types, _, *places = self._seen.shape
        along = self._seen.new_empty(types, len(self._work), *places)
        torch.sum(self._work, 2, out=along.transpose(0, 1))
        return along

    def add_mixed(self, to: Tensor, amount: Tensor) -> None:
        # Not baddbmm: where parents do not lie as it likes, it multiplies them one by one.
        to += torch.bmm(self._weight.transpose(1, 2), self._weigh(amount))

    def add(self, found: VoteGradients, terms: Sequence[Term]) -> None:
        if found.weight is not None:
            # What the work space holds already comes first.
            for amount, parents in sorted(terms, key=lambda term: term[0] is not self._amount):
                found.add_folded(self._tile, self._weigh(amount), parents)
        if found.pose is not None:
            self._amount = None
            (amount, parents), *rest = terms
            self._fold_times(parents, _by_parent(amount))
            for amount, parents in rest:
                self._work.addcmul_(self._fold(parents), _by_parent(amount))
            found.add_pose(self._tile, self._work.sum(0).unsqueeze(2))

    def _fold_times(self, parents: Tensor, factor: Tensor) -> None:
        """Multiply into the work space, in place where every child has weights of its own."""
        alone = self._work.shape[3] == 1
        folded = self._fold(parents, self._work if alone else None)
        torch.mul(folded, factor, out=self._work)

    def _fold(self, parents: Tensor, to: Tensor | None = None) -> Tensor:
        types, k, _, lanes = self._seen.shape
        if to is None:
            to = self._votes.scratch("folded", len(self._work), types, k, 1, lanes)
        torch.bmm(self._weight, parents, out=to.view(len(to), types * k, lanes))
        return to

    def _weigh(self, amount: Tensor) -> Tensor:
        """Return Σ_p a_ij u_i as [j, t k, b]."""
        if amount is not self._amount:
            torch.mul(_by_parent(amount), self._seen, out=self._work)
            self._amount = amount
        # A sum over one position would copy.
        summed = self._work.squeeze(3) if self._work.shape[3] == 1 else self._work.sum(3)
        return summed.flatten(1, 2)


AgreementTile = MadeTile | FoldedTile


def agreement_tile(votes: TiledVotes, tile: Tile) -> AgreementTile:
    """Return a tile in the cheaper of the two ways."""
    return FoldedTile(votes, tile) if folds(votes) else MadeTile(votes, tile)


def tiled(vote_map: VoteMap, dtype: torch.dtype) -> TiledVotes:
    """Cut votes into tiles for the cheaper way. Those that fold read all weights for every part of
    the lanes, so that these are cut last."""
    votes = TiledVotes(vote_map, dtype)
    if folds(votes):
        votes.pair, votes.least = votes.d_in, 1
    return votes


def folds(votes: TiledVotes) -> bool:
    """Say whether votes are no more than W_ij u_i, and there is something to save: numbers that are
    multiplied one by one, or products that children share."""
    bare = votes.bias is None and votes.coordinates is None and not votes.is_matrix
    return bare and votes.d_in <= votes.d_out - (votes.positions == 1)


def _by_parent(amount: Tensor) -> Tensor:
    """Lay [t, j, p, b] as [j, t, 1, p, b]."""
    return amount.transpose(0, 1).unsqueeze(2)
