"""The study of a table, of a paper, or of one claim: its plans as systems to run."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from torchcaps.errors import TorchcapsError, nearest, short
from torchcaps.study.record import read_records
from torchcaps.study.same import plain, trains
from torchcaps.study.system import MOST_SEEDS, Study, System, Waiting
from torchcaps_claims.claim import PAPERS, Claim, claims, claims_about, claims_of_table, find_claim
from torchcaps_claims.job import Job
from torchcaps_claims.looks import looks_of
from torchcaps_claims.names import told_apart
from torchcaps_claims.narrow import narrowed
from torchcaps_claims.plans import plan_of

Folder = str | os.PathLike[str]


def study_of(
    what: str,
    table: int | None = None,
    *,
    reduced: bool = False,
    seeds: int | None = None,
    evidence: Folder | None = None,
) -> Study:
    """The study of a table of a paper, of all claims of a paper, or of one claim.

    Arguments:
        what: a key of references.bib, or the id of a claim.
        table: the number of a table of the paper.
        reduced: the smaller form of each row, where there is one.
        seeds: how many, instead of as many as the plan asks for.
        evidence: the folder of records, for networks as narrow as others have capsules alive;
            without it they wait.

    >>> len(study_of("peer2022", 1).systems)
    4
    """
    if what in PAPERS:
        if table is not None:
            chosen, name = claims_of_table(what, table), f"{what}/table{table}"
        else:
            chosen, name = claims(paper=what), f"{what}/all"
    elif table is not None:
        known = nearest(what, PAPERS)
        raise TorchcapsError(f"Table {table} is of no paper that is known: {short(what)}; {known}.")
    else:
        chosen = claims_about(what)
        name = f"{chosen[0].paper}/{what}"
    return study_of_claims(chosen, name, reduced=reduced, seeds=seeds, evidence=evidence)


def study_of_claims(
    chosen: Sequence[Claim],
    name: str,
    *,
    reduced: bool = False,
    seeds: int | None = None,
    evidence: Folder | None = None,
) -> Study:
    """The study that judges some claims: every network that several need is one system."""
    if seeds is not None and seeds < 1:
        raise TorchcapsError(f"a study needs at least one seed, but seeds is {seeds}.")
    if seeds is not None and seeds > MOST_SEEDS:
        raise TorchcapsError(f"a study takes at most {MOST_SEEDS:,} seeds, but seeds is {seeds}.")
    systems: list[System] = []
    narrow: list[System] = []
    for claim in chosen:
        for job in plan_of(claim).jobs:
            small = job.smaller() if reduced else job
            found = System(
                label=label_of(small),
                recipe=plain(small.recipe()),
                seeds=tuple(range(seeds or job.seeds)),
                looks=looks_of(small),
                claims=(claim.id,),
                reduced=job.reduced.says if reduced and job.reduced is not None else None,
                departures=job.departures,
            )
            (narrow if small.is_narrow else systems).append(found)
    waiting: list[Waiting] = []
    if narrow:
        records = {} if evidence is None else read_records(evidence, drafts=True)
        twins, waiting = narrowed(_together(narrow), records.values())
        systems += twins
    return Study(name, told_apart(_together(systems)), tuple(dict.fromkeys(waiting)))


def label_of(job: Job) -> str:
    """The network, and what was chosen for it."""
    chosen = {**job.options, **job.fields}
    words = " ".join(f"{name}={value}" for name, value in chosen.items())
    return " ".join(filter(None, (job.model, words, f"on {job.train}")))


def check_planned(systems: Sequence[System], about: Sequence[str]) -> None:
    """Refuse a study of one's own whose records would judge claims in full, but that trains what
    is not planned for them."""
    jobs = [job for each in about for job in plan_of(find_claim(each)).jobs]
    planned = {trains(job.recipe()) for job in jobs}
    for system in systems:
        if trains(system.recipe) not in planned:
            raise TorchcapsError(
                f"the study speaks of {', '.join(about)}, whose plan does not train the network "
                f"{system.label} in this way, so it must say how it is smaller: reduced = "
                f'"three epochs"; or leave claims out.'
            )


def _together(systems: Iterable[System]) -> tuple[System, ...]:
    """Each network once."""
    found: dict[tuple[str, str | None], System] = {}
    for each in systems:
        # Protocols of two names may fill in the same fields. The first names the runs.
        key = (trains(each.recipe), each.reduced)
        found[key] = _joined(found[key], each) if key in found else each
    return tuple(found.values())


def _joined(first: System, second: System) -> System:
    """Two systems that train the same network."""
    lists: dict[str, Any] = {
        name: tuple(dict.fromkeys((*getattr(first, name), *getattr(second, name))))
        for name in ("looks", "claims", "departures")
    }
    return replace(first, seeds=tuple(sorted({*first.seeds, *second.seeds})), **lists)
