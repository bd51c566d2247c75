"""Names of systems in a table: short, and no two the same."""

import operator
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from torchcaps.study.system import System
from torchcaps.train import Recipe

# Of what two systems differ in, this is told first.
FIRST = ("prune", "prune_to", "protocol")


def told_apart(systems: Sequence[System]) -> tuple[System, ...]:
    """Label systems apart: where labels are equal, what differs between the systems is added."""
    found = list(systems)
    for label in dict.fromkeys(system.label for system in systems):
        places = [place for place, system in enumerate(systems) if system.label == label]
        for place, system in zip(places, _apart([systems[p] for p in places]), strict=True):
            found[place] = system
    return tuple(found)


def _apart(systems: list[System]) -> tuple[System, ...]:
    """Some of one label: under the first thing in which they differ, and then the next."""
    said = [_said(system) for system in systems]
    # Stable, so each kind of thing keeps its order.
    for about in sorted(dict.fromkeys(chain(*said)), key=operator.itemgetter(0)):
        words = [each.get(about, f"{about[1]}=none") for each in said]
        if len(set(words)) > 1:
            pairs = zip(systems, words, strict=True)
            return told_apart([replace(s, label=f"{s.label}, {word}") for s, word in pairs])
    return tuple(systems)


def _said(system: System) -> dict[tuple[int, str], str]:
    """Everything in which two systems may differ: fields, options, images, and what is smaller."""
    recipe = system.recipe
    fields = (*FIRST, *(n for n in Recipe.model_fields if n not in (*FIRST, "options")))
    images = dict.fromkeys(f"{look.data}/{look.split}" for look in system.looks)
    return {
        **{(0, name): f"{name}={_word(getattr(recipe, name))}" for name in fields},
        **{(1, name): f"{name}={_word(value)}" for name, value in recipe.options.items()},
        (2, "images"): f"seen on {' and '.join(images)}",
        (3, "reduced"): system.reduced or "in full",
    }


def _word(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
