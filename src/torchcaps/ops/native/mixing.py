"""The sums of `ops.fused.loop` by a native kernel: votes live in registers.

The first iteration, which makes no votes, is the product or the convolution of the fused form.
"""

import ctypes
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from torchcaps.ops.fused import mixing as fused
from torchcaps.ops.fused.loop import Given, Mixed, Visit, loop_of
from torchcaps.ops.fused.results import speak_for_all_samples
from torchcaps.ops.fused.tiles import MadeOf
from torchcaps.ops.native.build import library
from torchcaps.ops.native.layout import contiguous
from torchcaps.ops.native.reach import reaches
from torchcaps.ops.native.windows import Seen, filled, gradients_of, laid_back
from torchcaps.ops.operators import Gradients

__all__ = ["NativeMixing", "by_kernel", "mix"]


def mix(given: Given) -> Mixed:
    """By the kernel where it takes the votes, else by the fused form."""
    if not takes(given):
        return fused.mix(given)
    return by_kernel(given._replace(made_of=given.made_of.in_one_batch().widened()))


def takes(given: Given) -> bool:
    """Whether the kernel sums these votes."""
    votes = given.made_of
    return (
        votes.bias is None
        and speak_for_all_samples(given.prior, given.added)
        and reaches(votes.vote_map)
    )


class NativeMixing(fused.TiledMixing):
    """`loop.Mixing` by the kernel. Gradients of votes lie as the kernel writes them, and those of
    the first iteration are added at the end."""

    def __init__(self, given: Given, needs: Sequence[bool]):
        super().__init__(given, needs)
        self.given = given
        self.of_made = gradients_of(given.made_of, needs[:4])

    def mix(self, query: Tensor | None, adds: bool, record: Tensor | None) -> Tensor:
        if query is None:
            return super().mix(query, adds, record)
        sums = torch.empty_like(query, memory_format=torch.contiguous_format)
        if sums.numel():
            self._run(adds, query, {}, sums=sums, couplings=record)
        return sums

    def back(
        self, visit: Visit, query: Tensor | None, of_sum: Tensor | None, of_coupling: Tensor | None
    ) -> Tensor | None:
        if query is None or self.given.loop.detach not in ("none", "states"):
            return super().back(visit, query, of_sum, of_coupling)
        of_query = torch.empty_like(query, memory_format=torch.contiguous_format)
        if query.numel():
            self._run(
                visit.adds,
                query,
                self.of_made,
                of_sums=torch.zeros_like(of_query) if of_sum is None else of_sum.contiguous(),
                of_couplings=contiguous(of_coupling),
                of_query=of_query,
                of_prior=self.of_prior,
                of_added=self.of_added if visit.to_added else None,
            )
        return of_query if visit.to_query else None

    def _run(
        self,
        adds: bool,
        query: Tensor,
        of_made: Mapping[str, Tensor | None],
        **tensors: Tensor | None,
    ) -> None:
        given = self.given
        added = contiguous(given.added) if adds else None
        tensors |= {"query": query.contiguous(), "prior": contiguous(given.prior), "added": added}
        _run(given.made_of, given.loop.leaky, of_made, **tensors)

    def gradients(self) -> Gradients:
        kept = laid_back(self.of_made, self.given.made_of)
        *found, of_prior, of_added = super().gradients()
        of_made = [
            y if x is None else x if y is None else x.add_(y)
            for x, y in zip(kept, found, strict=True)
        ]
        return [*of_made, of_prior, of_added]


class _Job(ctypes.Structure):
    """What a call is given: the fields of the source in their order."""

    _fields_ = (
        ("seen_by", Seen),
        ("leaky", ctypes.c_int64),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("prior", "added", "query", "sums", "couplings", "of_sums", "of_couplings"),
                *("of_query", "of_prior", "of_added"),
            )
        ),
    )


def _run(
    made_of: MadeOf,
    leaky: bool,
    of_made: Mapping[str, Tensor | None],
    **tensors: Tensor | None,
) -> None:
    """Fill the tensors that are there to be filled."""
    found = library()
    assert found is not None
    seen, places, _alive = filled(made_of, of_made, tensors)
    job, backward = _Job(seen, leaky, **places), ctypes.c_int64("of_query" in tensors)
    found.torchcaps_mixing_plan(ctypes.byref(job), backward)
    workspace = torch.empty(job.seen_by.workspace_size, dtype=torch.float32)
    job.seen_by.workspace = workspace.data_ptr()
    found.torchcaps_mixing(ctypes.byref(job), backward)


by_kernel = loop_of("native_mixing", NativeMixing, "native routing")
