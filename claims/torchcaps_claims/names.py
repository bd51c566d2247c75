"""Names of systems in a table: short, and no two the same."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torchcaps.study.system import System
from torchcaps.train import Recipe

# Of what two systems differ in, this is told first.
FIRST = ("prune", "prune_to", "protocol")


def told_apart(systems: Sequence[System]) -> tuple[System, ...]:
    """The same systems. Where labels are equal, what differs between the systems is added."""
    namesakes: dict[str, list[int]] = defaultdict(list)
    for place, system in enumerate(systems):
        namesakes[system.label].append(place)
    found = list(systems)
    for places in namesakes.values():
        if len(places) > 1:
            for place, system in zip(places, _apart([found[p] for p in places]), strict=True):
                found[place] = system
    return tuple(found)


def _apart(systems: list[System]) -> tuple[System, ...]:
    """Some of one label: under the first thing in which they differ, and then the next."""
    for read in _readers(systems):
        words = [read(system) for system in systems]
        if len(set(words)) > 1:
            pairs = zip(systems, words, strict=True)
            return told_apart([replace(s, label=f"{s.label}, {word}") for s, word in pairs])
    return tuple(systems)


def _readers(systems: list[System]) -> list[Callable[[System], str]]:
    fields = [*FIRST, *(n for n in Recipe.model_fields if n not in (*FIRST, "options"))]
    options = dict.fromkeys(name for system in systems for name in system.recipe.options)
    return [
        *(_of_field(name) for name in fields),
        *(_of_option(name) for name in options),
        lambda system: "seen on " + " and ".join(dict.fromkeys(_images(system))),
        lambda system: system.reduced or "in full",
    ]


def _of_field(name: str) -> Callable[[System], str]:
    return lambda system: f"{name}={_word(getattr(system.recipe, name))}"


def _of_option(name: str) -> Callable[[System], str]:
    return lambda system: f"{name}={_word(system.recipe.options.get(name))}"


def _images(system: System) -> list[str]:
    return [f"{look.data}/{look.split}" for look in system.looks]


def _word(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
