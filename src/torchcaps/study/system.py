"""A study as a list of systems, each a recipe with its seeds and what is looked at."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from torchcaps.errors import TorchcapsError
from torchcaps.models import MODELS
from torchcaps.study.look import Look
from torchcaps.train.recipe import Recipe

# No study needs more of one network; a larger number is a slip of the keyboard.
MOST_SEEDS = 10_000
LAST_SEED = 2**32 - 1


class Cell(NamedTuple):
    """One seed of one recipe, and what is looked at once it is trained."""

    recipe: Recipe
    looks: tuple[Look, ...]

    @property
    def name(self) -> str:
        """Name its run: the digest tells two recipes apart, the rest is for people."""
        preset = MODELS.get(self.recipe.model)
        options = {**(preset.options if preset else {}), **self.recipe.options}
        routing = re.sub(r"[^\w.-]+", "-", str(options.get("routing", "")))
        which = f"{self.recipe.model}-{routing}" if routing else self.recipe.model
        return f"{which}-s{self.recipe.seed}-{self.recipe.digest()}"


@dataclass(frozen=True)
class System:
    """One trained system of a study."""

    label: str
    # Of the first seed.
    recipe: Recipe
    seeds: tuple[int, ...]
    looks: tuple[Look, ...]
    claims: tuple[str, ...] = ()
    # How it is smaller than what the paper did; None for the paper's own protocol.
    reduced: str | None = None
    departures: tuple[str, ...] = ()

    def cells(self) -> tuple[Cell, ...]:
        return tuple(
            Cell(self.recipe.model_copy(update={"seed": seed}), self.looks) for seed in self.seeds
        )


class Waiting(NamedTuple):
    """A system that cannot be run today, and why."""

    label: str
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Study:
    """Systems under one name; `name` is the folder of their records below evidence/."""

    name: str
    systems: tuple[System, ...]
    waiting: tuple[Waiting, ...] = ()
    # What was measured because it comes with what was asked for.
    unasked: tuple[str, ...] = ()
    # Code of one's own that every worker imports.
    imports: tuple[Path, ...] = ()

    def cells(self) -> tuple[Cell, ...]:
        """List every cell once, seed by seed, so that a study that is stopped has whole
        comparisons. One that several systems share has the looks of all of them."""
        rows = [system.cells() for system in self.systems]
        longest = max(map(len, rows), default=0)
        found: dict[str, Cell] = {}
        for each in (row[k] for k in range(longest) for row in rows if k < len(row)):
            before = found.get(each.name, each)
            looks = tuple(dict.fromkeys((*before.looks, *each.looks)))
            found[each.name] = before._replace(looks=looks)
        return tuple(found.values())


def only_those(study: Study, texts: Sequence[str]) -> Study:
    """Choose the systems in whose names each of these texts stands.

    >>> only_those(read_study("depth.toml"), ["routing=uniform"])  # doctest: +SKIP
    """
    found = tuple(each for each in study.systems if all(text in each.label for text in texts))
    if not found:
        asked = " and ".join(map(repr, texts))
        known = "; ".join(each.label for each in study.systems[:3]) or "none that can be run today"
        raise TorchcapsError(
            f"no system of {study.name} has {asked} in its name; `torchcaps study status` prints "
            f"the names: {known}."
        )
    return replace(study, systems=found, waiting=())
