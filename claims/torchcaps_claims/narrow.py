"""Networks as narrow as the living part of others [mitterreiter2023] §4.3.

How narrow is known once the routed network is trained, and stands in its record: what every epoch
counts dead of the first images that are held out, after the last epoch. So a plan names such a
network by the step `narrow` and the widths of the routed one, and its runs have the options, and
the names, of networks like any other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from torchcaps.models import MODELS
from torchcaps.study.record import Record
from torchcaps.study.same import plain, trained_in, trains
from torchcaps.study.system import System, Waiting
from torchcaps.train import Recipe

# The step of a plan, and the option of the networks that take it.
NARROW, WIDTHS = "narrow", "widths"
WAITS_FOR = "records of the routed networks, with which the same line goes on"


def widths_alive(record: Record) -> dict[int, str]:
    """By the seed, how many capsules each layer below the classes has alive, as the option takes
    them; a layer that is dead altogether keeps one. Seeds that failed have none, and neither have
    records without such counts."""
    known = {**MODELS[record.recipe["model"]].options, **record.recipe.get("options", {})}
    widths = [int(width) for width in known[WIDTHS].split(",")]
    layers = ["primary", *(f"hidden_{number}" for number in range(2, len(widths) + 1))]
    found = {}
    for seed in record.seeds:
        last = seed.per_epoch[-1] if seed.per_epoch else {}
        dead = [last[name] for layer in layers if (name := f"dead_capsules/{layer}") in last]
        if seed.failed is None and len(dead) == len(layers):
            alive = (max(1, n - round(gone)) for n, gone in zip(widths, dead, strict=True))
            found[seed.seed] = ",".join(map(str, alive))
    return found


def narrowed(
    systems: Iterable[System], records: Iterable[Record]
) -> tuple[list[System], list[Waiting]]:
    """Each system once for all seeds of the same widths, and what waits for records.

    Of several records of a routed network the judge takes the fullest, and so it is here; drafts
    come last, since no verdict rests on them. A routed network that diverged has no narrow twin,
    and nothing waits for one.
    """
    order = sorted(records, key=lambda each: (not each.is_draft, each.measured, each.made))
    found, waiting = [], []
    for system in systems:
        routed = trains(_routed(system))
        alive: dict[int, str] = {}
        lost: set[int] = set()
        for record in order:
            if record.reduced == system.reduced and trained_in(record) == routed:
                alive = widths_alive(record) or alive
                lost = {each.seed for each in record.seeds if each.failed is not None}
        mine = {seed: alive[seed] for seed in system.seeds if seed in alive}
        found += [_as_narrow(system, widths, mine) for widths in dict.fromkeys(mine.values())]
        if set(system.seeds) - mine.keys() - lost:
            waiting += [Waiting(claim, (WAITS_FOR,)) for claim in system.claims]
    return found, waiting


def _routed(system: System) -> Recipe:
    """The recipe of its twin, which routes as the network does by itself."""
    options = {name: each for name, each in system.recipe.options.items() if name != "routing"}
    return system.recipe.model_copy(update={"options": options})


def _as_narrow(system: System, widths: str, alive: Mapping[int, str]) -> System:
    options = {**system.recipe.options, WIDTHS: widths}
    return replace(
        system,
        label=f"{system.label}, narrowed to {widths}",
        recipe=plain(system.recipe.model_copy(update={"options": options})),
        seeds=tuple(seed for seed, each in alive.items() if each == widths),
    )
