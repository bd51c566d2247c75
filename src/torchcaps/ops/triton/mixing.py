"""The sums of `ops.fused.loop` by Triton kernels: votes live in the registers of a GPU.

Dynamic, inverted and self-attention routing are that loop with these sums. Backwards every query
gets its gradient first, iteration by iteration; then votes are made once more for the gradients of
all iterations together. Through windows, the gradients of poses lie in memory once for every window
that sees them.

Departures: votes of half precision are products of half precision summed in float32 and not rounded
themselves; gradients of votes are rounded to half precision before they are multiplied with poses
and weights, as they are where votes are stored. float32 is multiplied in full precision, unless
torch.set_float32_matmul_precision allows TensorFloat-32. float64 goes the fused way, as do priors
that differ between samples, and poses so large that the weights of one pair have more than 8192
numbers.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.ops.fused import mixing as fused
from torchcaps.ops.fused.loop import Given, Mixed, Visit, loop_of
from torchcaps.ops.fused.results import speak_for_all_samples
from torchcaps.ops.operators import Gradients
from torchcaps.ops.triton import votes as tiles
from torchcaps.ops.triton.runtime import check_available
from torchcaps.ops.triton.votes import Votes, fits, shared_out

__all__ = ["TritonMixing", "by_kernels", "mix"]


def mix(given: Given) -> Mixed:
    """By the kernels where they take the votes, else by the fused form."""
    check_available(given.made_of.pose.device)
    return by_kernels(_flat(given)) if takes(given) else fused.mix(given)


def takes(given: Given) -> bool:
    return fits(given.made_of.vote_map) and speak_for_all_samples(given.prior, given.added)


def _flat(given: Given) -> Given:
    """A batch may have several axes; without a window all of them are lanes. Poses and weights are
    multiplied in the precision of the poses, or that of autocast."""
    pose = given.made_of.pose
    kind, dtype = pose.device.type, pose.dtype
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
    return given._replace(made_of=given.made_of.in_one_batch()._replace(dtype=dtype))


class _Note(NamedTuple):
    """What the gradients of one iteration are made of, kept until those of all are made."""

    visit: Visit
    query: Tensor
    of_sum: Tensor
    of_coupling: Tensor | None
    norms: list[Tensor] | None


class TritonMixing:
    """`loop.Mixing` by the kernels; in them a sample that windows see counts as one for each."""

    def __init__(self, given: Given, needs: Sequence[bool]):
        # Not before: who has no Triton can import everything else.
        from torchcaps.ops.triton import mixing_kernels

        self.kernels, self.given, self.needs = mixing_kernels, given, needs
        self.votes = Votes(given.made_of, given.made_of.dtype)
        self.leaky = given.loop.leaky
        self.is_whole = self.votes.tiles == 1
        self.prior, self.added = (
            None if x is None else x.contiguous() for x in (given.prior, given.added)
        )
        self.lanes = (len(given.made_of.pose), self.votes.shape.windows)
        self._of_total: Tensor | None = None
        self._notes: list[_Note] = []

    def total(self) -> Tensor:
        """Where all samples have the same children, those that share weights are summed first."""
        votes, shape = self.votes, self.votes.shape
        if not shape.batch:
            return self._by_sample(votes.parents())
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
            *(*made_of, *(None,) * 8, partial, None),
            *(*votes.sizes(children), size, 0),
            **votes.constants(multiplied),
            LEAKY=self.leaky,
            WHOLE=True,
            UNIFORM=True,
        )
        total = partial.sum(0)
        if votes.vote_bias is not None:
            total += shape.children * votes.vote_bias
        if votes.coordinates is not None:
            total += votes.coordinates.sum(0)
        return self._by_sample(total)

    def mix(self, query: Tensor | None, adds: bool, record: Tensor | None) -> Tensor:
        if not self.votes.shape.batch:
            return self._by_sample(self.votes.parents())
        agreed = self._parents(query)
        norms = self._normalise(query is not None, agreed)
        added = self.added if adds else None
        return self._mix(query is not None, agreed, norms, added=added, coupling=record)

    def add_total(self, of_total: Tensor) -> None:
        self._of_total = self._parents(of_total)

    def back(
        self, visit: Visit, query: Tensor | None, of_sum: Tensor | None, of_coupling: Tensor | None
    ) -> Tensor | None:
        if not self.votes.shape.batch:
            return None if query is None else torch.zeros_like(query)
        agreed, gamma = self._parents(query), self._parents(of_sum)
        of_coupling = None if of_coupling is None else of_coupling.contiguous()
        norms = self._normalise(visit.has_query, agreed, gamma, of_coupling)
        if visit.mixes or visit.agrees or visit.to_prior or visit.to_added:
            self._notes.append(_Note(visit, agreed, gamma, of_coupling, norms))
        if not visit.to_query:
            return None
        return self._mix(visit.has_query, agreed, norms, gamma, of_coupling)

    def gradients(self) -> Gradients:
        notes = self._notes[::-1]
        zeros = [
            None if x is None or not need else torch.zeros_like(x)
            for x, need in zip((self.prior, self.added), self.needs[4:], strict=True)
        ]
        if not notes and self._of_total is None:
            return [*(None,) * 4, *zeros]
        found = self._differentiate(notes, *zeros)
        tensors = self.given.made_of[:4]
        of_votes = (
            None if x is None or gradient is None else gradient.to(x.dtype).view(x.shape)
            for x, gradient in zip(tensors, self.votes.gathered(found), strict=True)
        )
        return [*of_votes, *zeros]

    def _differentiate(
        self, notes: list[_Note], of_prior: Tensor | None, of_added: Tensor | None
    ) -> list[Tensor | None]:
        """Gradients of pose, weight, vote bias and coordinates, and through couplings into those of
        prior and added."""
        votes, first = self.votes, int(self._of_total is not None)
        gammas, queries = [x.of_sum for x in notes], [x.query for x in notes]
        if self._of_total is not None:
            gammas, queries = [self._of_total, *gammas], [self._of_total, *queries]
        end, visits = len(gammas), [x.visit for x in notes]

        def since(holds: Sequence[bool]) -> int:
            return first + (list(holds).index(True) if any(holds) else len(visits))

        kappas = [x.of_coupling for x in notes if x.of_coupling is not None]
        norms = _stacked([x.norms for x in notes], first)
        splits, size = votes.by_child()
        gradients = votes.gradients(self.needs[:4])
        to_logits = any(x.agrees or x.to_prior or x.to_added for x in visits)
        for tile in range(votes.tiles):
            votes.run(
                self.kernels.differentiate,
                splits * votes.shape.types,
                *(
                    *votes.made_of(),
                    self.prior,
                    self.added if any(x.adds for x in visits) else None,
                ),
                *(torch.stack(queries), torch.stack(gammas)),
                *(torch.stack(kappas) if kappas else None, *norms),
                *(*gradients, of_prior if any(x.to_prior for x in visits) else None),
                of_added if any(x.to_added for x in visits) else None,
                *(*votes.sizes(), size, tile * votes.blocks.parents, first, end),
                since([x.mixes for x in visits]),
                since([x.has_coupling for x in visits]),
                since([x.has_query for x in visits]),
                since([x.adds for x in visits]),
                **votes.constants(),
                LEAKY=self.leaky,
                WHOLE=self.is_whole,
                UNIFORM=first == 1,
                ASKS=first < end,
                TO_LOGITS=to_logits,
                AGREES=any(x.agrees for x in visits),
                ADDS=tile > 0,
            )
        return gradients

    def _normalise(
        self,
        has_query: bool,
        agreed: Tensor,
        of_sum: Tensor | None = None,
        of_coupling: Tensor | None = None,
    ) -> list[Tensor] | None:
        """M, Z and with γ also H of the kernels, [b, i]; none where a tile has all parents."""
        if self.is_whole:
            return None
        votes, shape = self.votes, self.votes.shape
        norms = list(votes.empty(3, shape.batch, shape.children))
        splits, size = votes.by_lane(1)
        votes.run(
            self.kernels.normalise,
            splits * votes.lanes,
            *(*votes.made_of(), self.prior, agreed, of_sum, of_coupling, *norms),
            *(*votes.sizes(), size, int(has_query)),
            **votes.constants(),
            LEAKY=self.leaky,
        )
        return norms

    def _mix(
        self,
        has_query: bool,
        agreed: Tensor,
        norms: list[Tensor] | None,
        of_sum: Tensor | None = None,
        of_coupling: Tensor | None = None,
        added: Tensor | None = None,
        coupling: Tensor | None = None,
    ) -> Tensor:
        """Σ_i c_ij û_ij; with γ Σ_i ∂b_ij û_ij."""
        votes = self.votes
        splits, size = votes.by_lane(tiles.CHILDREN, votes.tiles)
        partial = votes.parents(splits)
        votes.run(
            self.kernels.mix,
            splits * votes.tiles * votes.lanes,
            *(*votes.made_of(), self.prior, added, agreed, of_sum, of_coupling),
            *(*(norms or (None, None, None)), partial, coupling),
            *(*votes.sizes(), size, int(has_query)),
            **votes.constants(),
            LEAKY=self.leaky,
            WHOLE=self.is_whole,
            UNIFORM=False,
        )
        return self._by_sample(partial.sum(0))

    def _parents(self, parents: Tensor | None) -> Tensor:
        """[b, p, j, d] as the kernels have them, zeros where there are none."""
        if parents is None:
            return self.votes.parents().zero_()
        return parents.contiguous().view(self.votes.shape.batch, *parents.shape[2:])

    def _by_sample(self, parents: Tensor) -> Tensor:
        return parents.view(*self.lanes, *parents.shape[1:])


def _stacked(norms: Sequence[list[Tensor] | None], first: int) -> list[Any]:
    """M, Z and H of all iterations; the uniform one has none."""
    there = [x for x in norms if x is not None]
    if not there:
        return [None, None, None]
    return [
        torch.stack([*(each[:1] * first), *each]) for each in map(list, zip(*there, strict=True))
    ]


by_kernels = loop_of("triton_mixing", TritonMixing, "routing by Triton")
