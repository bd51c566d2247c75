"""What is read off a trained network, and what each number is called.

A look is one pass over images, or over weights alone. It gives numbers by name: `accuracy` in
percent, or, of the look `layers`, `dyr.2` for the second routed layer and `cns.2` for the second
layer of capsules, both counted from below as the papers do. Those of other images than the run's
own test images carry their name: `accuracy@sign/train`; those of couplings on a grid carry its
levels before: `accuracy+K11`, or `accuracy+K11,6` of two routed layers.
"""

import importlib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from torchcaps.data.by_name import why_no_source
from torchcaps.data.registry import SOURCES
from torchcaps.errors import TorchcapsError, nearest
from torchcaps.models.own import OWN
from torchcaps.study.court import court, needed_court

if TYPE_CHECKING:
    from torchcaps.train.recipe import Recipe

OF_CAPSULES = ("capsules_alive", "cnm", "cns", "car", "car_twice", "cas", "cdr", "cds")
OF_COUPLINGS = ("coupling_std", "dyr", "dys")
OF_LAYERS = (*OF_CAPSULES, *OF_COUPLINGS)
SPLITS = ("test", "validation", "train")


class Look(NamedTuple):
    """A kind of pass over the images of one set."""

    kind: str
    data: str
    split: str = "test"
    # Couplings on a grid: one number for all routed layers, or one for each from below.
    levels: tuple[int, ...] = ()

    @property
    def images(self) -> str:
        return f"{self.data}/{self.split}"

    @property
    def name(self) -> str:
        return f"{self.kind}{self.grid}@{self.images}"

    @property
    def grid(self) -> str:
        """Name the levels; nothing where couplings are as they are."""
        return f"+K{','.join(map(str, self.levels))}" if self.levels else ""

    def key(self, number: str, *, tested_on: str) -> str:
        """Name one of its numbers as in the record of runs that are tested on a set."""
        if self.kind == "weights":
            return number
        is_own = (self.data, self.split) == (tested_on, "test")
        named = f"{number}{self.grid}"
        return named if is_own else f"{named}@{self.images}"


# The numbers by name, of a `measure.Shown`.
Take = Callable[[Any], dict[str, float]]


class Kind(NamedTuple):
    """What somebody registered under the name of a look."""

    take: Take
    has_grid: bool
    trains: str
    check: "Callable[[Look, Recipe], None]"


# By the name of the look, and its name by the statistics that ask for it.
KINDS: dict[str, Kind] = {}
KIND_OF: dict[str, str] = {}


def register_look(
    name: str,
    *statistics: str,
    has_grid: bool = True,
    trains: str = "",
    check: "Callable[[Look, Recipe], None]" = lambda look, recipe: None,
) -> Callable[[Take], Take]:
    """Add a look to those that studies may take: a decorator of what takes it.

    Arguments:
        name: what the ledger calls it.
        statistics: the words under `measure` in a study that ask for it.
        has_grid: whether it can be taken of couplings on a grid.
        trains: what the folder of a run that it trains ends with, beside that of the cell.
        check: refuses a recipe that can give it no number, before it is trained.
    """

    def enter(take: Take) -> Take:
        KINDS[name] = Kind(take, has_grid, trains, check)
        KIND_OF.update(dict.fromkeys(statistics, name))
        return take

    return enter


def kind_named(name: str) -> Kind:
    """Find what was registered under the name of a look."""
    _register(name, KINDS)
    if name not in KINDS:
        # The claims are installed where the study was read, and not here.
        needed_court(f"the look {name}")
    return KINDS[name]


def kind_of(statistic: str) -> str | None:
    """Find the look that gives a statistic; None where there is none yet."""
    _register(statistic, KIND_OF)
    return KIND_OF.get(statistic)


def _register(name: str, table: Mapping[str, object]) -> None:
    """Load who registers looks until a table has a name: this package, then the claims."""
    if name not in table:
        importlib.import_module("torchcaps.study.measure")
    if name not in table:
        court()


def looks_named(names: list[str], data: str) -> tuple[Look, ...]:
    """Make the looks at statistics that somebody names, of the set that is trained on or of others:
    "accuracy", "dyr", "accuracy@affnist-style/test", "entropy+K11".

    >>> looks_named(["accuracy", "dyr"], "mnist")[1].name
    'layers@mnist/test'
    """
    found = []
    for name in names:
        named, _, images = name.partition("@")
        statistic, _, grid = named.partition("+K")
        kind = kind_of(statistic)
        if kind is None:
            known = nearest(statistic, tuple(KIND_OF))
            raise TorchcapsError(f"statistic {statistic!r} cannot be measured in a study; {known}.")
        where, _, split = images.partition("/")
        if images and split not in SPLITS:
            raise TorchcapsError(
                f"{name!r} must name images as SET/SPLIT, for example {statistic}@mnist/test; "
                f"splits are {', '.join(SPLITS)}."
            )
        if where == OWN:
            raise TorchcapsError(
                f"{name!r}: images that a Python program holds have no name; name a data set."
            )
        if where and where not in SOURCES:
            raise TorchcapsError(f"{name!r}: the set {why_no_source(where)}.")
        words = grid.split(",")
        if not all(re.fullmatch("[0-9]{1,9}", word) for word in words) and "+" in named:
            raise TorchcapsError(
                f"{name!r} must name the levels of couplings as +K and a number, for example "
                f"{statistic}+K11, or one for each routed layer from below, {statistic}+K11,6."
            )
        levels = tuple(int(word) for word in words if word)
        if levels and not KINDS[kind].has_grid:
            raise TorchcapsError(
                f"{name!r}: {statistic} is measured of couplings as they are; leave +K{grid} out."
            )
        if levels and min(levels) < 2:
            raise TorchcapsError(f"{name!r} must have the 2 levels 0 and 1, or more.")
        found.append(Look(kind, where or data, split or "test", levels))
    return tuple(dict.fromkeys(found))
