"""What all records together say about every claim: its verdict, or where it stands without one."""

import os
from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from statistics import fmean
from typing import Any

from torchcaps.models import MODELS
from torchcaps.study.look import Look, kind_of
from torchcaps.study.record import Record, Seed, read_records
from torchcaps.study.same import trained_in, trains
from torchcaps_claims.claim import Claim, claims, find_claim
from torchcaps_claims.comparable import (
    accuracies_of,
    other_network,
    why_incomparable,
    why_it_leans,
    width_of,
)
from torchcaps_claims.job import Job
from torchcaps_claims.judges import judge_and_read
from torchcaps_claims.judges.case import JUDGES
from torchcaps_claims.onset import onsets_at_least
from torchcaps_claims.plan import Plan
from torchcaps_claims.plans import plan_of
from torchcaps_claims.starts import (
    SEEDS,
    VARIED,
    Start,
    Varied,
    are_varied,
    as_default,
    bear_out,
    contradict,
)
from torchcaps_claims.statistics import RATES
from torchcaps_claims.verdict import (
    NumberVerdict,
    ShownVerdict,
    StatementVerdict,
    is_as_right,
    judge,
    judge_best,
    judge_count,
    judge_test,
)

# Why a number is open that a shorter schedule agrees with.
CUT_SHORT = (
    "training that was cut short is right more often already, and all of it would lead further away"
)


@dataclass(frozen=True)
class Result:
    """A claim, its verdict, and the records on which that rests, by their hash."""

    claim: Claim
    plan: Plan
    verdict: NumberVerdict | StatementVerdict | ShownVerdict | None = None
    records: Mapping[str, Record] = field(default_factory=dict)
    # What other choices say, where it rests on a default of ours.
    starts: tuple[Start, ...] = ()

    @property
    def status(self) -> str:
        """The word of the verdict, or why there is none."""
        return self.plan.status if self.verdict is None else self.verdict.word

    @property
    def is_untrained(self) -> bool:
        """Whether its verdict rests on counts and tests alone."""
        return self.verdict is not None and self.plan.word is not None

    @property
    def is_reduced(self) -> bool:
        """Whether it rests on a smaller protocol than the paper's."""
        return any(record.reduced is not None for record in self.records.values())


def results(
    evidence: str | os.PathLike[str] = "evidence", *, paper: str | None = None
) -> list[Result]:
    """One a claim, in the order of the files; records of changed code are left out.

    >>> len(results(paper="peer2022"))
    73
    """
    records = read_records(evidence)
    return [result_of(claim, records) for claim in claims(paper=paper)]


def result_of(claim: Claim, records: Mapping[str, Record]) -> Result:
    """What records, by their hash, say about a claim: those that name it, and those of the same
    networks.

    Of several records of a number the one of the full protocol is taken, then one as in public
    code, then one that can be compared, then the one of most seeds, then the latest. A statement
    compares, and rests on those of them that its judge reads, of the full protocol or else of a
    smaller one.

    >>> result_of(find_claim("gu2021-t1-capsnet-affnist"), read_records())  # doctest: +SKIP
    """
    found = _of_records(claim, records)
    verdict = found.verdict
    if verdict is None or isinstance(verdict, ShownVerdict):
        return found
    if claim.identity is not None and verdict.word in ("reproduced", "holds"):
        return replace(found, verdict=verdict.by_definition(claim.identity))
    if claim.repeats is not None and isinstance(verdict, NumberVerdict):
        first = result_of(find_claim(claim.repeats), records).verdict
        # One fact has one verdict, whichever of its numbers is the coarser, and whoever says it: a
        # number decides nothing that its sentence leaves open.
        said = verdict.word
        if isinstance(first, NumberVerdict):
            said = first.word
        elif isinstance(first, StatementVerdict) and first.word == "undecided":
            said = "undecided"
        if said != verdict.word:
            because = f"it says what {claim.repeats} says"
            return replace(found, verdict=replace(verdict, word=said, open_because=because))
    return found


def _of_records(claim: Claim, records: Mapping[str, Record]) -> Result:
    """Judge a row by its own records, whatever other rows say."""
    plan = plan_of(claim)
    models = {job.model for job in plan.jobs}
    # All networks of its jobs, full or reduced, whichever claim they were made for.
    trained = {trains(each.recipe()) for job in plan.jobs for each in (job, job.smaller())}
    about = {
        name: record
        for name, record in records.items()
        # A study of our own judges nothing of a paper, whatever networks it shares with a plan: it
        # does not say how much smaller they are. What other choices give stands beside it.
        if record.study not in {of.study for of in VARIED}
        and (
            claim.id in record.claims
            or (
                record.claims
                and record.recipe.get("model") in models
                and trained_in(record) in trained
            )
        )
    }
    if claim.states and plan.shown_by is None:
        for alike in _comparable(plan, about):
            compared, read = judge_and_read(claim, alike.values())
            if compared is not None:
                taken = {id(record) for record in read}
                rests_on = {name: each for name, each in alike.items() if id(each) in taken}
                because = why_it_leans(plan, [*rests_on.values()])
                if because is not None or compared.word == "undecided":
                    compared = compared.leaning(because)
                return _on_default(Result(claim, plan, compared, rests_on), records)
        return Result(claim, plan)
    if len(plan.jobs) > 1:
        return _on_default(_chosen_of(plan, about) or Result(claim, plan), records)
    judged = [
        Result(claim, plan, verdict, {name: record})
        for name, record in about.items()
        if (verdict := _verdict(plan, record)) is not None
    ]
    return _on_default(max(judged, key=_rank, default=Result(claim, plan)), records)


def _on_default(found: Result, records: Mapping[str, Record]) -> Result:
    """A verdict that rests on a default of ours, as other choices leave it: borne out, open, or one
    on our default alone."""
    because, verdict = found.claim.default, found.verdict
    if because is None or verdict is None or isinstance(verdict, ShownVerdict):
        return found
    starts = tuple(each for of in VARIED for each in _starts_of(of, found.plan, records))
    if other := contradict(verdict.word, starts):
        verdict = verdict.left_open(
            f"it depends on {other.of.choice}, which the paper does not say: {other.of.ours} it "
            f"comes out as {verdict.word}, {other.said} as {other.word}"
        )
    elif verdict.word == "reproduced" and not are_varied(starts, because):
        # What our choice alone confirms counts for the paper no more than what it refutes.
        verdict = verdict.left_open("not all of our choices were varied where the paper is silent")
    elif verdict.word == "fails" and any(x.learns and x.word == "undecided" for x in starts):
        verdict = verdict.left_open("another choice where the paper is silent leaves it open")
    elif not bear_out(verdict.word, starts, because):
        verdict = verdict.on_default(because)
    return replace(found, verdict=verdict, starts=starts)


def _starts_of(of: Varied, plan: Plan, records: Mapping[str, Record]) -> list[Start]:
    """What each other choice gives, by the rule for ours, of fewer seeds."""
    claim = plan.claim
    fewer = replace(claim, conditions={**claim.conditions, "n_seeds_min": SEEDS})
    found: dict[float, Start] = {}
    # Of several records of a choice that of most seeds counts.
    for name, record in sorted(records.items(), key=lambda each: each[1].measured):
        if record.study != of.study or claim.id not in record.claims:
            continue
        verdict: NumberVerdict | StatementVerdict | None = None
        if claim.states:
            verdict, _ = judge_and_read(fewer, [as_default(record, of)])
        elif values := values_of(plan, record):
            verdict = judge(claim, values)
        right, choice = accuracies_of(record), record.recipe["options"][of.option]
        found[choice] = Start(of, choice, name, record, fmean(right) if right else 0.0, verdict)
    return [found[choice] for choice in sorted(found)]


def _comparable(plan: Plan, about: Mapping[str, Record]) -> Iterable[dict[str, Record]]:
    """Give the records of the full protocol; then those of a smaller one: networks that were
    trained as the paper's and looked at in a smaller way, beside the first, then those that were
    trained for as long as a smaller form of the plan, and then the others, whatever their lengths:
    a network of a plan is not compared with one that was trained for longer."""
    whole = {name: record for name, record in about.items() if record.reduced is None}
    yield whole
    smaller = {name: record for name, record in about.items() if record.reduced is not None}
    forms = [job.smaller().recipe() for job in plan.jobs]
    as_the_paper = {trains(job.recipe()) for job in plan.jobs}
    as_planned = {trains(recipe) for recipe in forms}
    # The narrow twin of a routed network has a recipe that no plan could write down.
    lengths = {_length(recipe.model_dump()) for recipe in forms}
    papers = {name: each for name, each in smaller.items() if trained_in(each) in as_the_paper}
    planned = {
        name: each
        for name, each in smaller.items()
        if trained_in(each) in as_planned
        or (name not in papers and _length(each.recipe) in lengths)
    }
    others = {n: each for n, each in smaller.items() if n not in papers and n not in planned}
    # They stand beside networks that were looked at in full, as those of sets at hand are.
    papers = papers and whole | papers
    for alike in (papers, planned, others):
        yield from _as_wide(plan.claim, alike)


def _length(recipe: Mapping[str, Any]) -> tuple[Any, ...]:
    """How long a network is trained; each data set has a smaller form of its own."""
    return tuple(recipe.get(name) for name in ("data", "epochs", "train_images", "learning_rate"))


def _as_wide(claim: Claim, smaller: Mapping[str, Record]) -> Iterable[dict[str, Record]]:
    """A width at a time, since a narrow network is not compared with a wide one. Where a statement
    compares networks on one data set at a time, each set has its own width. A network that has no
    width stands beside those of any where each is compared with itself."""
    entry = JUDGES.get(claim.id)
    if entry is not None and entry.within_a_set:
        sets = {record.recipe["data"] for record in smaller.values()}
        of_sets = [
            max(_by_width({n: r for n, r in smaller.items() if r.recipe["data"] == data}), key=len)
            for data in sorted(sets)
        ]
        yield dict(ChainMap(*of_sets))
        return
    widths = _by_width(smaller)
    if entry is not None and entry.with_itself:
        without = {name: record for name, record in smaller.items() if not _has_width(record)}
        widths = [alike | without for alike in widths]
    yield from widths


def _by_width(records: Mapping[str, Record]) -> list[dict[str, Record]]:
    """The widest first: it is nearest to the paper's. None is as wide as that."""
    found: dict[int | None, dict[str, Record]] = {}
    for name, record in records.items():
        found.setdefault(width_of(record), {})[name] = record
    return [found[width] for width in sorted(found, key=lambda x: -inf if x is None else -x)]


def _has_width(record: Record) -> bool:
    model = record.recipe.get("model")
    return model in MODELS and "width" in MODELS[model].options


def _verdict(plan: Plan, record: Record) -> NumberVerdict | ShownVerdict | None:
    claim = plan.claim
    if plan.shown_by is None:
        values = values_of(plan, record)
        if not values:
            return None
        is_other = record.reduced is not None and other_network(plan.jobs[0], record) is not None
        because = why_incomparable(plan, record)
        if "best_seed" in plan.jobs[0].at:
            judged = judge_best(claim, values, plan.jobs[0].seeds, incomparable=because)
        else:
            judged = judge(claim, values, incomparable=because, is_other_network=is_other)
        return judged if record.reduced is None else _unless_passed(judged)
    # A record of tests has one number by the id of each claim: what was counted, or that the test
    # passed.
    shown = record.seeds[0]
    if claim.id not in shown.values:
        return None
    found = shown.values[claim.id]
    if claim.kind == "params" or (plan.word == "count" and not claim.states):
        return judge_count(claim, found)
    if plan.word == "definition" and found > 0:
        return ShownVerdict("by definition", plan.shown_by)
    return judge_test(claim, plan.shown_by, found=found)


def _unless_passed(found: NumberVerdict) -> NumberVerdict:
    """Leave open what a shorter training agrees with whose networks are right more often than the
    paper's, by more than chance: more of it leads further away."""
    printed, ours = found.claim.value, found.ours
    if found.claim.kind != "accuracy" or found.word != "reproduced":
        return found
    assert isinstance(printed, int | float)
    # The best of some seeds has no interval.
    least = ours.mean if ours.low is None else ours.low
    return found.left_open(CUT_SHORT) if least > printed else found


def values_of(plan: Plan, record: Record) -> list[float] | None:
    """One value a seed of the number that a claim prints; None where the record does not give it.

    Of several layers a bound is of the largest. What several jobs choose from no record gives.
    """
    claim = plan.claim
    if claim.states or len(plan.jobs) != 1 or not isinstance(claim.value, int | float):
        return None
    (job,) = plan.jobs
    if job.metrics == ("onset",):
        return onsets_at_least(record) or None
    known = {name for seed in record.seeds for name in seed.values}
    for each in (job, job.smaller()):
        # A record that was made for the claim may be of another epoch.
        if each.ends and each.ends["epochs"] != record.recipe.get("epochs"):
            continue
        names = _keys(each)
        if names and known.issuperset(names):
            is_percent = claim.unit == "%" and job.metrics[0] in RATES
            by_seed = zip(*(record.values(name) for name in names), strict=True)
            return [(100 if is_percent else 1) * max(values) for values in by_seed]
    return None


def _keys(job: Job) -> list[str]:
    """What the number of a job is called in a record, of each layer that it is of."""
    if len(job.metrics) != 1:
        return []
    (statistic,) = job.metrics
    kind = kind_of(statistic)
    layers = job.at.get("layers", [])
    if kind is None or (kind == "layers") != bool(layers):
        return []
    tested_on = job.fields.get("test_data", job.train)
    place = {
        "compactness": str(job.at.get("factor", "")).lower() or None,
        "keys": job.at.get("class") if statistic == "keys" else None,
    }.get(kind)
    look = Look(kind, job.test, job.split, job.levels)
    return [
        look.key(statistic if each is None else f"{statistic}.{each}", tested_on=tested_on)
        for each in layers or [place]
    ]


def _chosen_of(plan: Plan, about: Mapping[str, Record]) -> Result | None:
    """A number of several jobs, of which each seed takes the one that was right most often on the
    images held out; None where one of them was not run."""
    for is_small in (False, True):
        found: list[tuple[str, Record]] = []
        for job in plan.jobs:
            recipe = trains((job.smaller() if is_small else job).recipe())
            alike = [
                each
                for each in about.items()
                if (each[1].reduced is not None) == is_small and trained_in(each[1]) == recipe
            ]
            if alike:
                found.append(max(alike, key=lambda each: (each[1].measured, each[1].made)))
        if len(found) == len(plan.jobs):
            return _choice(plan, dict(found))
    return None


def _choice(plan: Plan, records: Mapping[str, Record]) -> Result:
    by_job = [
        {seed.seed: seed for seed in each.seeds if "accuracy" in seed.values}
        for each in records.values()
    ]
    every = sorted({seed for seeds in by_job for seed in seeds})
    common = [seed for seed in every if all(seed in seeds for seeds in by_job)]

    def held_out(seed: Seed) -> float:
        return max([row["validation_accuracy"] for row in seed.per_epoch[-1:]], default=0.0)

    best = [max((seeds[k] for seeds in by_job), key=held_out) for k in common]
    values = [seed.values["accuracy"] for seed in best]
    is_reduced = any(each.reduced is not None for each in records.values())
    because = None
    if len(common) < len(every):
        because = f"{len(every) - len(common)} seeds were not run with every choice"
    elif is_reduced:
        printed = plan.claim.value
        assert isinstance(printed, float)
        if not is_as_right(values, printed):
            because = (
                f"{fmean(values):.1f} % of its test images are right, and {printed} % are printed"
            )
    judged = judge(plan.claim, values, incomparable=because)
    return Result(plan.claim, plan, _unless_passed(judged) if is_reduced else judged, records)


def _rank(each: Result) -> tuple[bool, bool, bool, int, str]:
    (record,) = each.records.values()
    is_as_in_code = bool(record.recipe.get("options", {}).get("as_code"))
    is_comparable = not (isinstance(each.verdict, NumberVerdict) and each.verdict.incomparable)
    made = record.made.isoformat()
    return record.reduced is None, is_as_in_code, is_comparable, record.measured, made
