"""FLOPs of the loop that dynamic, inverted and self-attention routing are, whoever mixes."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torchcaps.ops.fused.loop import Given, visits
from torchcaps.ops.operators import Asked


class Mixing(NamedTuple):
    """What sums over children take."""

    products: int  # of making all votes
    agreement: int  # of one multiply-add for each of their numbers
    total: int  # of the sum of all votes

    def asked(self, times: int) -> int:
        """Count some questions to the votes: what they agree with, or their weighed sum."""
        return self.products + times * self.agreement

    def handed_on(self, terms: int, needs: Sequence[bool]) -> int:
        """Give a gradient of some terms, from votes to poses and weights."""
        some = any(needs[:4]) and terms > 0
        return some * (terms * self.agreement + (needs[0] + needs[1]) * self.products)


def forward(given: Given, mixing: Mixing) -> int:
    return sum(
        mixing.total if uniform else mixing.asked(has_query + 1)
        for uniform, has_query in _iterations(given)
    )


def is_uniform(given: Given) -> bool:
    """Say whether all couplings are known before."""
    return all(uniform for uniform, _ in _iterations(given))


def _iterations(given: Given) -> Iterator[tuple[bool, bool]]:
    """Say of each iteration whether couplings are known before, and whether votes agree with a
    query."""
    for t in range(given.loop.iterations):
        has_query, is_last = t > 0 or given.start is not None, t == given.loop.iterations - 1
        adds = is_last and given.added is not None
        yield not (has_query or adds or given.prior is not None), has_query


def backward(asked: Asked[Given], mixing: Mixing) -> int:
    needs, flops = asked.needs, 0
    for visit in visits(asked):
        if visit.is_uniform:
            flops += visit.mixes * (needs[0] + needs[1]) * mixing.total
        elif visit.goes_on:
            asks_h = visit.has_sum and (visit.to_logits or visit.to_added)
            flops += mixing.asked(visit.has_query + asks_h + visit.to_query)
            flops += mixing.handed_on(visit.mixes + visit.agrees, needs)
    return flops
