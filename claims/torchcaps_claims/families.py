"""One table of many networks, each beside its twin that does not route: what routing gains."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from torchcaps.study.record import Record
from torchcaps_claims.variants import (
    Difference,
    Variants,
    about,
    base_of,
    differences_of,
    in_brackets,
    interval_of,
)
from torchcaps_claims.verdict import LEAST_SEEDS

__all__ = ["Families", "Family", "gains_of", "lines_of_families", "sentence_of"]

HEAD = ("network", "routing", "images", "routed", "not routed", "routing gains", "records")


class Family(NamedTuple):
    """A network that routes beside its twin that does not."""

    network: str
    routing: str
    images: str
    # Of these two alone; the one that is compared with does not route, and of the columns the first
    # is compared.
    variants: Variants


class Families(NamedTuple):
    """Networks with their twins, under one heading."""

    title: str
    says: str
    of: tuple[Family, ...]


def gains_of(
    families: Families, records: Mapping[str, Record]
) -> Iterator[tuple[Family, Difference]]:
    """By how much each network lies above its twin, of those that share three seeds or more; sides
    are those of intervals that hold together for all.

    Arguments:
        families: the networks.
        records: all records by their hash.
    """
    there = [
        each
        for each in families.of
        for _, found in differences_of(each.variants, records)
        if found.interval.n >= LEAST_SEEDS
    ]
    for family in there:
        ((_, found),) = differences_of(family.variants, records, beside=len(there))
        yield family, found


def lines_of_families(
    families: Families, records: Mapping[str, Record], evidence: str
) -> Iterator[str]:
    """A section in Markdown; nothing without records.

    Arguments:
        families: the networks.
        records: all records by their hash.
        evidence: where their folder lies, as seen from the page.
    """
    found = [*gains_of(families, records)]
    if not found:
        return
    yield from (f"## {families.title}", "", families.says, "")
    yield f"| {' | '.join(HEAD)} |"
    yield "|---" * len(HEAD) + "|"
    for family, gain in found:
        yield f"| {' | '.join(_cells(family, gain, records, evidence))} |"
    yield from ("", sentence_of(families, records) or "", "")


def sentence_of(families: Families, records: Mapping[str, Record]) -> str | None:
    """Where routing gains, where it loses, and where neither is certain.

    Arguments:
        families: the networks.
        records: all records by their hash.
    """
    sides: dict[str | None, list[str]] = {"above": [], "below": [], None: []}
    for family, gain in gains_of(families, records):
        sides[gain.side].append(family.network)
    n = sum(map(len, sides.values()))
    words = {"above": "gains in", "below": "loses in", None: "makes no certain difference in"}
    said = [f"{verb} {_listed(sides[side])}" for side, verb in words.items() if sides[side]]
    wider = f"s, widened so that all {n} hold together" if n > 1 else ""
    return f"Routing {'; '.join(said)} (95 % interval{wider})." if said else None


def _listed(parts: Sequence[str]) -> str:
    *others, last = parts
    return f"{', '.join(others)} and {last}" if others else last


def _cells(
    family: Family, gain: Difference, records: Mapping[str, Record], evidence: str
) -> Iterator[str]:
    yield from (family.network, family.routing, family.images)
    rows = about(family.variants, records)
    base = base_of(family.variants, rows.values())
    names = sorted(rows, key=lambda name: rows[name] is base)
    accuracy = family.variants.columns[0]._replace(is_compared=False)
    for name in names:
        yield in_brackets(interval_of(rows[name], accuracy, base), rows[name].measured)
    yield in_brackets(gain.interval, gain.interval.n)
    yield ", ".join(f"[{x}]({evidence}/{rows[x].study}/{x}.json)" for x in names)
