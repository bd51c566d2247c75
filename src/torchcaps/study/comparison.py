"""Runs side by side: what differs, the mean of each over its seeds, its interval, and its cost."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.errors import TorchcapsError
from torchcaps.models import MODELS
from torchcaps.study.intervals import Interval, mean_interval
from torchcaps.train import Recipe, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Comparison", "Variant", "compare"]

ACCURACY = "accuracy"
MISSING = "–"


@dataclass(frozen=True)
class Variant:
    """Runs that differ in their seed alone."""

    label: str
    seeds: tuple[int, ...]
    # One value a seed, by the name of the statistic.
    values: Mapping[str, tuple[float, ...]]
    # Of training, over all seeds.
    seconds: float
    folders: tuple[str, ...] = ()

    def interval(self, statistic: str) -> Interval | None:
        """The mean over the seeds with its t-interval; None where no seed has the statistic."""
        values = self.values.get(statistic, ())
        return mean_interval(values) if values else None

    def numbers(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        intervals = {name: self.interval(name) for name in self.values}
        return {
            "variant": self.label,
            "seeds": list(self.seeds),
            "statistics": {
                name: {"mean": i.mean, "low": i.low, "high": i.high, "values": self.values[name]}
                for name, i in intervals.items()
                if i is not None
            },
            "seconds_of_training": self.seconds,
            "folders": list(self.folders),
        }


@dataclass(frozen=True)
class Comparison:
    """Variants under the words that tell them apart."""

    variants: tuple[Variant, ...]

    @property
    def statistics(self) -> tuple[str, ...]:
        """Everything that some variant has, in the order of its first appearance."""
        return tuple(dict.fromkeys(name for each in self.variants for name in each.values))

    def numbers(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {"variants": [each.numbers() for each in self.variants]}

    def text(self) -> str:
        """A table: a line a variant, a column a statistic."""
        named = [f"{name}, %" if _is_share(name) else name for name in self.statistics]
        head = ["", "seeds", *named, "training, a run"]
        rows = [head, *(self._cells(each) for each in self.variants)]
        widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, "in brackets: the 95 % t-interval of the mean over seeds"])

    def check_statistic(self, statistic: str) -> None:
        """Refuse one that no variant has."""
        if statistic not in self.statistics:
            raise TorchcapsError(
                f"there is no {statistic!r} to draw; there is {', '.join(self.statistics)}."
            )

    def figure(self, statistic: str = ACCURACY) -> "Figure":
        """Every mean as a dot with its interval, and every seed as a small mark."""
        from torchcaps.viz import draw_intervals

        self.check_statistic(statistic)
        rows = []
        for each in self.variants:
            found = each.interval(statistic)
            if found is not None:
                rows.append((each.label, found.mean, found.low, found.high, each.values[statistic]))
        unit = ", %" if _is_share(statistic) else ""
        return draw_intervals(rows, label=f"{statistic}{unit}")

    def _cells(self, variant: Variant) -> list[str]:
        found = [variant.interval(name) for name in self.statistics]
        told = [MISSING if each is None else _in_words(each) for each in found]
        runs = len(variant.seeds)
        return [variant.label, str(runs), *told, _duration(variant.seconds / runs)]


def compare(runs: Sequence[str | os.PathLike[str]]) -> Comparison:
    """Finished runs, grouped by what tells their recipes apart beside the seed.

    Arguments:
        runs: run folders, or folders that hold some.

    >>> print(compare(["runs"]).text())
    """
    found = [run for path in runs for run in _runs_at(Path(path))]
    waiting = [str(run.folder) for run in found if not run.is_done]
    if waiting:
        have = "has" if len(waiting) == 1 else "have"
        raise TorchcapsError(
            f"{', '.join(waiting)} {have} no result yet; finish each run with the line that began "
            f"it, or leave it out."
        )
    groups: dict[str, list[Run]] = {}
    for run in found:
        groups.setdefault(run.recipe.model_copy(update={"seed": 0}).digest(), []).append(run)
    labels = _labels([runs[0].recipe for runs in groups.values()])
    return Comparison(
        tuple(_variant(label, runs) for label, runs in zip(labels, groups.values(), strict=True))
    )


def _runs_at(path: Path) -> list[Run]:
    if Run(path).recipe_file.is_file():
        return [Run(path)]
    inside = [Run(each) for each in sorted(path.iterdir())] if path.is_dir() else []
    found = [run for run in inside if run.recipe_file.is_file()]
    # Names of folders end in a digest, which would put three iterations before two.
    found.sort(key=lambda run: _place(run.recipe))
    if not found:
        raise TorchcapsError(f"{path} is no run folder and holds none; torchcaps train makes one.")
    return found


def _labels(recipes: Sequence[Recipe]) -> list[str]:
    """For each recipe the fields and options in which it differs from some other one."""
    told = [_flat(recipe) for recipe in recipes]
    names = dict.fromkeys(name for each in told for name in each)
    differing = [name for name in names if len({repr(each.get(name)) for each in told}) > 1]
    return [
        " ".join(
            str(each[name]) if name == "model" else f"{name}={each[name]}"
            for name in differing
            if name in each
        )
        or str(each["model"])
        for each in told
    ]


def _flat(recipe: Recipe) -> dict[str, Any]:
    fields: dict[str, Any] = recipe.model_dump()
    options = fields.pop("options")
    fields.pop("seed")
    # What is not written out is what the network has by itself; of your own only its run knows.
    known = MODELS[recipe.model].options if recipe.model in MODELS else {}
    return {**fields, **known, **options}


def _place(recipe: Recipe) -> list[tuple[bool, float, str]]:
    """Where a recipe stands among others: by the values of its fields, numbers by their size."""
    values = _flat(recipe).values()
    are_numbers = [isinstance(each, int | float) for each in values]
    return [
        (is_number, float(each) if is_number else 0.0, str(each))
        for each, is_number in zip(values, are_numbers, strict=True)
    ]


def _is_share(statistic: str) -> bool:
    return statistic.startswith(ACCURACY)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _variant(label: str, runs: Sequence[Run]) -> Variant:
    runs = sorted(runs, key=lambda run: run.recipe.seed)
    seeds = tuple(run.recipe.seed for run in runs)
    if len(set(seeds)) < len(seeds):
        raise TorchcapsError(
            f"{', '.join(str(run.folder) for run in runs)} train one recipe with the seeds "
            f"{list(seeds)}; a seed that counts twice would narrow the interval: leave one out."
        )
    values: dict[str, list[float]] = {}
    for run in runs:
        for name, value in _values(run).items():
            values.setdefault(name, []).append(value)
    seconds = sum(row["seconds"] for run in runs for row in run.metrics())
    folders = tuple(str(run.folder) for run in runs)
    told = {name: tuple(found) for name, found in values.items()}
    return Variant(label, seeds, told, seconds, folders)


def _values(run: Run) -> dict[str, float]:
    """The accuracy, and what a study measured of the run beside it."""
    found = {ACCURACY: 100 * run.result()["test_accuracy"]}
    measured = run.folder.with_name(f"{run.folder.name}.values.json")
    if measured.is_file():
        for name, numbers in json.loads(measured.read_text(encoding="utf-8"))["looks"].items():
            images = name.partition("@")[2]
            own = images == f"{run.recipe.test_data or run.recipe.data}/test"
            found |= {k if own else f"{k}@{images}": value for k, value in numbers.items()}
    return found


def _in_words(found: Interval) -> str:
    if found.low is None:
        return f"{found.mean:.4g}"
    return f"{found.mean:.4g} [{found.low:.4g}, {found.high:.4g}]"
