"""Going on from records: seeds that stand in one are not trained again, and their numbers and the
new ones become one record. So a study can be run in parts, on machines that keep no runs.
"""

from collections.abc import Iterable
from dataclasses import replace

from torchcaps.errors import TorchcapsError
from torchcaps.study.record import Record, Seed, make_record
from torchcaps.study.same import trained_in, trains
from torchcaps.study.system import Study, System


def going_on(study: Study, records: Iterable[Record]) -> Study:
    """The study without the seeds that its own records have; each system knows its record.

    Arguments:
        study: all of it.
        records: those that stand, drafts or not; drafts are passed over.

    >>> going_on(study_of("peer2022", 1), []).in_parts
    True
    """
    known = [each for each in records if each.study == study.name and not each.is_draft]
    systems = tuple(_going_on(each, known) for each in study.systems)
    return replace(study, systems=systems, in_parts=True)


def joined(earlier: Record, new: Record) -> Record:
    """The record of the seeds of both, which names the commits and machines of both.

    Seeds of both keep the numbers of the new one. A statistic that only the new one has stays out:
    of its few seeds it would stand before that of a record that has it for more.
    """
    _check(earlier, new)
    known = _statistics(earlier.seeds) or _statistics(new.seeds)
    seeds = {
        each.seed: each for each in (*earlier.seeds, *(_of(known, each) for each in new.seeds))
    }
    # What it does not say of its own seeds, nobody knows.
    unsaid = {
        name
        for name in {*new.data} - {*earlier.data}
        if any(each.endswith(f"@{name}") for each in _statistics(earlier.seeds))
    }
    first = min((earlier, new), key=lambda each: min(seed.seed for seed in each.seeds))
    fields = new.model_dump() | {
        "seeds": tuple(seeds[number] for number in sorted(seeds)),
        "recipe": first.recipe,
        "recipe_hash": first.recipe_hash,
        "command": first.command,
        "data": {**earlier.data, **{n: new.data[n] for n in new.data if n not in unsaid}},
        "commit": _both(earlier.commit, new.commit) if new.commit else None,
        "dirty": earlier.dirty or new.dirty,
        # Its own parts have commas.
        "device": _whole(earlier.device, new.device),
        "versions": {
            name: _both(earlier.versions.get(name), version)
            for name, version in new.versions.items()
        },
    }
    return make_record(**fields)


def _going_on(system: System, records: list[Record]) -> System:
    network = trains(system.recipe)
    alike = [each for each in records if trained_in(each) == network and _serves(each, system)]
    if not alike:
        return system
    best = max(alike, key=lambda each: (each.measured, each.made))
    there = {each.seed for each in best.seeds}
    return replace(
        system,
        seeds=tuple(seed for seed in system.seeds if seed not in there),
        earlier=best,
    )


def _serves(record: Record, system: System) -> bool:
    """Whether it is of this system: several may train one network, and look at other images."""
    if not {*record.claims} <= {*system.claims}:
        return False
    if record.claims and record.reduced != system.reduced:
        return False
    tested_on = system.recipe.test_data or system.recipe.data
    endings = {each.key("", tested_on=tested_on) for each in system.looks}
    # Statistics of weights, and those of its own test images, have none.
    endings.discard("")
    found = _statistics(record.seeds)
    return not found or all(any(n.endswith(each) for n in found) for each in endings)


def _check(earlier: Record, new: Record) -> None:
    """Refuse to put together what was trained or measured otherwise. The runs are kept."""
    instead = "leave --from-records out, and the same line trains the other seeds as well."
    # A network that failed came to no test images.
    if any(earlier.data[name] != new.data[name] for name in {*earlier.data} & {*new.data}):
        raise TorchcapsError(
            f"the record {earlier.digest()} was trained and tested on other images "
            f"({_said(earlier)}) than the runs here ({_said(new)}), so they do not make one "
            f"record; is --root the folder it was made with? Else {instead}"
        )
    known, found = _statistics(earlier.seeds), _statistics(new.seeds)
    if known and found and not known & found:
        raise TorchcapsError(
            f"the record {earlier.digest()} has {sorted(known)[0]} and none of what the runs here "
            f"have, {sorted(found)[0]} for one, so they do not make one record; {instead}"
        )


def _of(statistics: set[str], seed: Seed) -> Seed:
    values = {name: value for name, value in seed.values.items() if name in statistics}
    return seed.model_copy(update={"values": values})


def _statistics(seeds: Iterable[Seed]) -> set[str]:
    return {name for each in seeds for name in each.values}


def _said(record: Record) -> str:
    return ", ".join(f"{name} {digest}" for name, digest in record.data.items())


def _both(earlier: str | None, new: str | None) -> str:
    """What two records say, each once; a field may hold that of several runs already."""
    parts = [part for text in (earlier, new) if text for part in text.split(", ")]
    return ", ".join(dict.fromkeys(parts))


def _whole(earlier: str, new: str) -> str:
    return earlier if f", {new}, " in f", {earlier}, " else f"{earlier}, {new}"
