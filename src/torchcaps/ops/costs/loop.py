"""FLOPs of the loop that dynamic, inverted and self-attention routing are, whoever mixes."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from torchcaps.ops.fused.loop import Given as Looped
from torchcaps.ops.fused.loop import visits
from torchcaps.ops.operators import Asked

__all__ = ["LoopSizes", "iterations", "loop_backward_flops", "loop_flops"]


class LoopSizes(Protocol):
    """FLOPs of what a backend does in an iteration of `ops.fused.loop`."""

    @property
    def total(self) -> int:
        """The sum of all votes."""
        ...

    def asked(self, times: int) -> int:
        """Some questions to the votes: what they agree with, or their weighed sum."""
        ...

    def handed_on(self, terms: int, needs: Sequence[bool], known: bool) -> int:
        """A gradient of some terms, from votes to poses and weights; `known` where children have
        been weighed by one of the terms."""
        ...


def loop_flops(given: Looped, size: LoopSizes) -> int:
    return sum(
        size.total if is_uniform else size.asked(has_query + 1)
        for is_uniform, has_query in iterations(given)
    )


def iterations(given: Looped) -> Iterator[tuple[bool, bool]]:
    """Of each, whether couplings are known before, and whether votes agree with a query."""
    for t in range(given.loop.iterations):
        has_query, is_last = t > 0 or given.start is not None, t == given.loop.iterations - 1
        adds = is_last and given.added is not None
        yield not (has_query or adds or given.prior is not None), has_query


def loop_backward_flops(asked: Asked[Looped], size: LoopSizes) -> int:
    needs, flops = asked.needs, 0
    for visit in visits(asked):
        if visit.is_uniform:
            flops += visit.mixes * (needs[0] + needs[1]) * size.total
        elif visit.goes_on:
            asks_h = visit.has_sum and (visit.to_logits or visit.to_added)
            flops += size.asked(visit.has_query + asks_h + visit.to_query)
            terms = visit.mixes + visit.agrees
            flops += size.handed_on(terms, needs, visit.to_query and visit.agrees)
    return flops
