"""Runs side by side: what differs, the mean of each over its seeds, its interval, and its cost."""

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.analysis.shares import Commonest
from torchcaps.errors import TorchcapsError, short
from torchcaps.models import MODELS
from torchcaps.study.intervals import Interval, mean_interval
from torchcaps.study.look import OF_LAYERS
from torchcaps.study.same import plain
from torchcaps.tasks.tables import in_columns
from torchcaps.tasks.values_file import values_of
from torchcaps.train import Recipe, Run
from torchcaps.train.class_measures import MEASURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACCURACY = "accuracy"
MISSING = "–"
# Of a table that a screen can hold.
MOST_COLUMNS = 12
# What differences have of all that variants have.
OF_DIFFERENCES = ("variant", "seeds", "statistics")
# dyr.2@mnist/test: of the second layer.
OF_A_LAYER = re.compile(rf"({'|'.join(OF_LAYERS)})\.\d+(.*)")


@dataclass(frozen=True)
class Variant:
    """Runs that differ in their seed alone: of one recipe, on the same images."""

    label: str
    seeds: tuple[int, ...]
    # One value a seed, by the name of the statistic.
    values: Mapping[str, tuple[float, ...]]
    # Of training, over all seeds.
    seconds: float
    folders: tuple[str, ...] = ()
    # The seeds of a statistic that not all have: a layer may have no capsule that lives.
    seeds_of: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # The line that the accuracy has to beat; older runs did not write it down.
    commonest: Commonest | None = None
    # What a network says of every image, by the seeds of those that say one thing.
    constant: Mapping[int, str] = field(default_factory=dict)
    # The least that a share in percent can be; of a difference −100.
    least: float = 0.0
    # Which images the runs were tested on: differences are between those of the same.
    tested_on: str = ""

    def interval(self, *statistics: str) -> Interval | None:
        """Take the mean over the seeds with its t-interval, of shares within what a share can be;
        None where no seed has the statistic. Where all seeds have one value there are no ends: that
        nothing varied among them says little of others. Several are averaged as by `by_seed`."""
        return _mean_over_seeds(self.by_seed(*statistics).values(), statistics, self.least)

    def by_seed(self, *statistics: str) -> dict[int, float]:
        """Give the statistic of each seed that has it; of several their mean, of those that some
        seed has, for the seeds that have all of these."""
        found = [
            dict(zip(self.seeds_of.get(name, self.seeds), self.values[name], strict=True))
            for name in statistics
            if name in self.values
        ]
        common = [seed for seed in self.seeds if found and all(seed in each for each in found)]
        return {seed: sum(each[seed] for each in found) / len(found) for seed in common}

    def numbers(self) -> dict[str, Any]:
        """Give everything, as JSON has it."""
        intervals = {name: self.interval(name) for name in self.values}
        return {
            "variant": self.label,
            "seeds": list(self.seeds),
            "statistics": {
                name: {
                    "mean": i.mean,
                    "low": i.low,
                    "high": i.high,
                    "values": self.values[name],
                    **({"unit": "%"} if is_share(name) else {}),
                }
                for name, i in intervals.items()
                if i is not None
            },
            "commonest": None if self.commonest is None else self.commonest.numbers(),
            "constant": {str(seed): said for seed, said in self.constant.items()},
            "seconds_of_training": self.seconds,
            "folders": list(self.folders),
        }


@dataclass(frozen=True)
class Comparison:
    """Variants under the words that tell them apart, and words of those that are the baseline."""

    variants: tuple[Variant, ...]
    baseline: str = ""

    @property
    def statistics(self) -> tuple[str, ...]:
        """List everything that some variant has, in the order of its first appearance."""
        return tuple(dict.fromkeys(name for each in self.variants for name in each.values))

    def only(self, statistics: Iterable[str], *, without: Iterable[str] = ()) -> "Comparison":
        """Keep these statistics alone; of layers, whatever the layer, none named `without`."""
        asked, gone = set(statistics), set(without)

        def stays(name: str) -> bool:
            of_layer = OF_A_LAYER.fullmatch(name)
            return name in asked and (of_layer is None or of_layer[1] not in gone)

        variants = (
            replace(each, values={name: x for name, x in each.values.items() if stays(name)})
            for each in self.variants
        )
        return replace(self, variants=tuple(variants))

    def against(self, baseline: str | None) -> "Comparison":
        """Hold all against the variants that have these words in their names."""
        found = replace(self, baseline=baseline or "")
        named = [each.tested_on for each in found._baselines()]
        if baseline and len(set(named)) < max(len(named), 1):
            raise TorchcapsError(
                f"--baseline {short(baseline)} must stand in the name of one line, or of one for "
                f"each data set, but stands in {len(named)} of: "
                f"{'; '.join(each.label for each in self.variants)}."
            )
        return found

    def _baselines(self) -> list[Variant]:
        words = {*self.baseline.split()}
        return [each for each in self.variants if words <= {*each.label.split()}]

    def _pairs(self) -> list[tuple[Variant, Variant]]:
        """Pair variants with the first baseline on the same test images."""
        first = {each.tested_on: each for each in reversed(self._baselines())}
        pairs = [(each, first.get(each.tested_on, each)) for each in self.variants]
        return [(each, base) for each, base in pairs if each is not base]

    def differences(self) -> tuple[Variant, ...]:
        """Subtract the baseline from each of the others, seed by seed, over the seeds that both
        have; nothing where these are fewer than two. Seeds share their first weights and the
        order of their images, so a difference may be certain where two intervals overlap."""
        found = []
        for each, base in self._pairs():
            values = {name: _less(each, base, [name]) for name in self.statistics}
            less = _of_seeds(f"{each.label} less {base.label}", values)
            if len(less.seeds) > 1:
                found.append(replace(less, least=-100.0))
        return tuple(found)

    def numbers(self) -> dict[str, Any]:
        """Give everything, as JSON has it."""
        differences, kept = (each.numbers() for each in self.differences()), OF_DIFFERENCES
        return {
            "variants": [each.numbers() for each in self.variants],
            "differences": [{name: each[name] for name in kept} for each in differences],
        }

    def text(self) -> str:
        """Make a table: a line a variant, a column a statistic, of all layers together, and below
        them the differences to the baseline; the other way round where statistics are many."""
        head = ["", "seeds", *self._columns(), "training, a run"]
        differences = [cells for pair in self._pairs() if (cells := self._cells_less(*pair))]
        rows = [head, *(self._cells(each) for each in self.variants), *differences]
        if len(head) > MOST_COLUMNS:
            rows = [list(row) for row in zip(*rows, strict=True)]
        intervals = [each.interval(name) for each in self.variants for name in each.values]
        if any(each is not None and each.low is not None for each in intervals):
            last = "in brackets: the 95 % t-interval of the mean over seeds"
            last += "; less: seed by seed" if differences else ""
        elif any(each is not None and each.n > 1 for each in intervals):
            last = "no intervals over seeds, for none of these numbers varies from seed to seed"
        else:
            last = "no intervals over seeds, for each line is of one seed"
        return "\n".join([*in_columns(rows), last, *self.to_beat(), *self.constants()])

    def constants(self) -> list[str]:
        """Write a line for every answer that networks of a variant give to all images."""
        found = []
        for each in self.variants:
            for said in dict.fromkeys(each.constant.values()):
                of_seed = each.constant.items()
                seeds = ", ".join(str(seed) for seed, answer in of_seed if answer == said)
                few = f"seed{'s' if ',' in seeds else ''} {seeds}"
                found.append(f"constant: {each.label} says {said!r} of every image, {few}")
        return found

    def to_beat(self) -> list[str]:
        """Write a line for every answer that accuracies have to beat, and whose they are."""
        if ACCURACY not in self.statistics:
            return []
        by_line: dict[Commonest, list[str]] = {}
        for each in self.variants:
            if each.commonest is not None:
                by_line.setdefault(each.commonest, []).append(each.label)
        return [
            f"to beat{'' if len(labels) == len(self.variants) else ', ' + ', '.join(labels)}: "
            f"{100 * line.share:.4g} %, which always saying {line.name!r} would give"
            for line, labels in by_line.items()
        ]

    def check_statistic(self, statistic: str) -> None:
        """Refuse one that no variant has."""
        if statistic not in self.statistics:
            raise TorchcapsError(
                f"there is no {short(statistic)} to draw; there is {', '.join(self.statistics)}."
            )

    def figure(self, statistic: str = ACCURACY) -> "Figure":
        """Draw means, intervals and seeds; of accuracies on the same images the line to beat."""
        from torchcaps.viz import draw_intervals

        self.check_statistic(statistic)
        rows = []
        for each in self.variants:
            found = each.interval(statistic)
            if found is not None:
                rows.append((each.label, found.mean, found.low, found.high, each.values[statistic]))
        unit = ", %" if is_share(statistic) else ""
        lines = {each.commonest for each in self.variants}
        line = lines.pop() if statistic == ACCURACY and len(lines) == 1 else None
        to_beat = None if line is None else (100 * line.share, f"always {line.name!r}")
        return draw_intervals(rows, label=f"{statistic}{unit}", line=to_beat)

    def _columns(self) -> dict[str, list[str]]:
        """List the statistics of each column, by its head."""
        found: dict[str, list[str]] = {}
        for name in self.statistics:
            of_layer = OF_A_LAYER.fullmatch(name)
            unit = ", %" if is_share(name) else ""
            head = f"{of_layer[1]}{of_layer[2]}, mean of layers" if of_layer else f"{name}{unit}"
            found.setdefault(head, []).append(name)
        return found

    def _cells(self, variant: Variant) -> list[str]:
        found = [variant.interval(*names) for names in self._columns().values()]
        runs = len(variant.seeds)
        means = [mean_in_words(each, runs) for each in found]
        return [variant.label, str(runs), *means, duration(variant.seconds / runs)]

    def _cells_less(self, variant: Variant, first: Variant) -> list[str] | None:
        """Say the difference of two cells above, each the mean of its variant's layers."""
        columns = self._columns().values()
        seeds = len({*variant.seeds} & {*first.seeds})
        if seeds < 2:
            return None
        less = ((names, _less(variant, first, names).values()) for names in columns)
        found = [_mean_over_seeds(values, names, -100.0) for names, values in less]
        means = [mean_in_words(each, seeds) for each in found]
        return [f"{variant.label} less {first.label}", str(seeds), *means, ""]


def compare(runs: Sequence[str | os.PathLike[str]]) -> Comparison:
    """Group finished runs by what tells their recipes apart beside the seed.

    Arguments:
        runs: run folders, or folders that hold some.

    >>> print(compare(["runs"]).text())
    """
    # A run that is named twice, or beside the folder that holds it, is one run.
    found = list(
        {run.folder.resolve(): run for path in runs for run in _runs_at(Path(path))}.values()
    )
    waiting = [str(run.folder) for run in found if not run.is_done]
    if waiting:
        have = "has" if len(waiting) == 1 else "have"
        raise TorchcapsError(
            f"{', '.join(waiting)} {have} no result yet; finish each run with the line that began "
            f"it, or leave it out."
        )
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in found:
        groups.setdefault((_network(run.recipe), _images(run)), []).append(run)
    labels = labels_of([runs[0].recipe for runs in groups.values()])
    recipes = [recipe for recipe, _ in groups]
    named = [
        f"{label} images={images or MISSING}" if recipes.count(recipe) > 1 else label
        for label, (recipe, images) in zip(labels, groups, strict=True)
    ]
    # A table of runs of before these were written down is as it was.
    measures = set.intersection(*(set(run.measures) for run in found))
    return Comparison(
        tuple(
            _variant(label, runs, measures)
            for label, runs in zip(named, groups.values(), strict=True)
        )
    )


def is_share(statistic: str) -> bool:
    """Say whether it is in percent of the images."""
    return statistic.startswith(ACCURACY) or statistic in MEASURES


def _mean_over_seeds(
    values: Iterable[float], names: Sequence[str], least: float
) -> Interval | None:
    """Take the mean of one value a seed as `Variant.interval` does, of shares from `least` on."""
    found = [*values]
    if not found:
        return None
    mean, low, high, n = mean_interval(found)
    if low is None or high is None or min(found) == max(found):
        return Interval(found[0], None, None, n)
    if all(map(is_share, names)):
        return Interval(mean, max(low, least), min(high, 100.0), n)
    return Interval(mean, low, high, n)


def mean_in_words(found: Interval | None, runs: int) -> str:
    """Say a mean and its interval, with the number of seeds where not all have it."""
    if found is None:
        return MISSING
    n = f", n = {found.n}" if found.n < runs else ""
    same = ", the same in all seeds" if found.low is None and found.n > 1 else ""
    return f"{found.text()}{same}{n}"


def _network(recipe: Recipe) -> str:
    """Give runs one digest which differ in their seed alone, or in how options are written."""
    known = plain(recipe) if recipe.model in MODELS else recipe
    return known.model_copy(update={"seed": 0}).digest()


def _images(run: Run) -> str:
    """Read the digests of the images it was trained and tested on: a recipe may leave them open."""
    digests = run.result().get("digests", {})
    return "/".join(digests[split] for split in ("train", "test") if split in digests)


def _runs_at(path: Path) -> list[Run]:
    if Run(path).recipe_file.is_file():
        _recipe(Run(path))
        return [Run(path)]
    inside = [Run(each) for each in sorted(path.iterdir())] if path.is_dir() else []
    found = [run for run in inside if run.recipe_file.is_file()]
    # Names of folders end in a digest, which would put three iterations before two.
    found.sort(key=lambda run: _place_of(_recipe(run)))
    if not found:
        raise TorchcapsError(f"{path} is no run folder and holds none; torchcaps train makes one.")
    return found


def _recipe(run: Run) -> Recipe:
    try:
        return run.recipe
    except TorchcapsError:
        # It may name what code of one's own registers; then that is what is missing.
        run.check_imported()
        raise


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _variant(label: str, runs: Sequence[Run], of_classes: Collection[str]) -> Variant:
    runs = sorted(runs, key=lambda run: run.recipe.seed)
    seeds = tuple(run.recipe.seed for run in runs)
    if len(set(seeds)) < len(seeds):
        raise TorchcapsError(
            f"{', '.join(str(run.folder) for run in runs)} train one recipe with the seeds "
            f"{list(seeds)}; a seed that counts twice would narrow the interval: leave one out."
        )
    values: dict[str, dict[int, float]] = {}
    for run in runs:
        for name, value in _values(run, of_classes).items():
            values.setdefault(name, {})[run.recipe.seed] = value
    constant, recipe = {run.recipe.seed: run.constant for run in runs}, runs[0].recipe
    return replace(
        _of_seeds(label, values),
        seconds=sum(run.seconds for run in runs),
        folders=tuple(str(run.folder) for run in runs),
        commonest=next((run.commonest for run in runs if run.commonest is not None), None),
        constant={seed: said for seed, said in constant.items() if said is not None},
        tested_on=f"{recipe.test_data or recipe.data}, fold {recipe.fold}",
    )


def _of_seeds(label: str, values: Mapping[str, Mapping[int, float]]) -> Variant:
    seeds = tuple(dict.fromkeys(seed for found in values.values() for seed in found))
    has = {name: [x for x in seeds if x in found] for name, found in values.items() if found}
    by_name = {name: tuple(values[name][seed] for seed in those) for name, those in has.items()}
    some = {name: tuple(those) for name, those in has.items() if len(those) < len(seeds)}
    return Variant(label, seeds, by_name, seconds=0.0, seeds_of=some)


def _values(run: Run, of_classes: Collection[str]) -> dict[str, float]:
    """Read accuracy, these measures of classes, and what a study measured of the run."""
    found = {ACCURACY: run.accuracy}
    found |= {name: value for name, value in run.measures.items() if name in of_classes}
    for name, numbers in values_of(run)["looks"].items():
        # As records name them: accuracy+K11@mnist/test is of couplings on a grid.
        kind, _, images = name.partition("@")
        kind, plus, levels = kind.partition("+")
        own = images == f"{run.recipe.test_data or run.recipe.data}/test" or kind == "weights"
        named = {f"{number}{plus}{levels}": value for number, value in numbers.items()}
        found |= named if own else {f"{k}@{images}": value for k, value in named.items()}
    return found


def _less(variant: Variant, first: Variant, names: Sequence[str]) -> dict[int, float]:
    """Subtract the first variant from another one, for each seed that both have."""
    base = first.by_seed(*names)
    return {seed: x - base[seed] for seed, x in variant.by_seed(*names).items() if seed in base}


def labels_of(recipes: Sequence[Recipe]) -> list[str]:
    """Say for each recipe the fields and options in which it differs from some other one."""
    flat = [_flat(recipe) for recipe in recipes]
    models = dict.fromkeys(recipe.model for recipe in recipes)
    # Between networks of several names only what somebody wrote: their defaults are what they are.
    written = {name for recipe in recipes for name in (*_fields(recipe), *recipe.options)}
    labels = []
    for recipe, each in zip(recipes, flat, strict=True):
        alike = [x for x, other in zip(flat, recipes, strict=True) if other.model == recipe.model]
        names = [
            name
            for name in each
            if _differs(name, alike)
            or (name in written and all(name in x for x in flat) and _differs(name, flat))
        ]
        # A field that is not set has no value to tell.
        parts = [f"{k}={each[k]}" for k in names if k != "model" and each[k] is not None]
        labels.append(" ".join([recipe.model] * (len(models) > 1) + parts) or recipe.model)
    return labels


def _differs(name: str, rows: Sequence[dict[str, Any]]) -> bool:
    return len({repr(each.get(name)) for each in rows}) > 1


def _fields(recipe: Recipe) -> dict[str, Any]:
    fields: dict[str, Any] = recipe.model_dump()
    return {name: value for name, value in fields.items() if name not in ("options", "seed")}


def _flat(recipe: Recipe) -> dict[str, Any]:
    # What is not written out is what the network has by itself; of your own only its run knows.
    known = MODELS[recipe.model].options if recipe.model in MODELS else {}
    return {**_fields(recipe), **known, **recipe.options}


def _place_of(recipe: Recipe) -> list[tuple[bool, float, str]]:
    """Say where a recipe stands among others: by its values, numbers by their size."""
    values = _flat(recipe).values()
    are_numbers = [isinstance(each, int | float) for each in values]
    return [
        (is_number, float(each) if is_number else 0.0, str(each))
        for each, is_number in zip(values, are_numbers, strict=True)
    ]
