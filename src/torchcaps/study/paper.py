"""What a paper says of runs: methods, table, references and figures, from their records alone."""

import csv
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import torch
from markupsafe import Markup

from torchcaps._json import read_json
from torchcaps._paths import path_of, write_whole
from torchcaps._printable import printable
from torchcaps.errors import TorchcapsError
from torchcaps.models import MODELS
from torchcaps.study.comparison import (
    ACCURACY,
    Comparison,
    Variant,
    compare,
    duration,
    is_share,
    mean_in_words,
)
from torchcaps.study.cross_validation import TESTS, WRITTEN, test_in_words
from torchcaps.study.intervals import Interval
from torchcaps.tasks.evaluate import evaluate_file
from torchcaps.tasks.predictions import as_cell
from torchcaps.train import Run
from torchcaps.train.class_measures import MEASURES
from torchcaps.train.folder.objects import damaged
from torchcaps.train.loss import FITTING
from torchcaps.train.optimiser import OPTIMISERS
from torchcaps.train.selecting import in_words

# How signs are written that LaTeX or Markdown would take for its own. After the end of a row a
# bracket would be a length in LaTeX, and a star no star.
TEX = {each: rf"\{each}" for each in "&%$#_{}"} | {each: f"{{{each}}}" for each in "[]*"}
TEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
TEX |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "–": "--"}
MARKDOWN = {each: f"\\{each}" for each in "\\`*_{}[]<>|#&$~"}
LOSSES = {
    "auto": "the loss that fits its scores",
    **{"margin": "margin loss", "spread": "spread loss", "focal": "focal loss"},
    **{"cross_entropy": "cross-entropy", "binary": "binary cross-entropy"},
}
FOLDER = resources.files("torchcaps.study")
TOPICS = ("data", "images", "network", "training", "stopping", "comparison", "hardware")


class Row(NamedTuple):
    """A row of the table: a network, how many seeds or folds of it there are, over what intervals
    are, its statistics, and of folds the recipe."""

    label: str
    runs: int | str
    over: str
    statistics: Mapping[str, Interval]
    recipe: Any = None


class Pooled(NamedTuple):
    """What a cross-validation found: a row a network, notes, pairs tested, images of each class."""

    rows: list[Row]
    notes: list[str]
    pairs: int
    images: list[str]


def write_paper(
    runs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    root: Path | None = None,
    figures: bool = True,
) -> Path:
    """Write what a paper says of finished runs into a folder: methods.md and .tex, table.md, .tex
    and .csv, references.bib, and figures. The same runs give the same bytes. The folds of a folder
    of `crossval` are one row of the table.

    Arguments:
        runs: run folders, or folders that hold some.
        out: the folder.
        root: where the data lies, for figures, if a run does not remember it.
        figures: whether the networks are shown their test images again, to draw them; of several
            seeds or folds the first.

    >>> write_paper(["my-run"], "paper")  # doctest: +SKIP
    """
    from torchcaps.viz import write_figure

    found, folder = compare(runs), path_of("out", out)
    pooled = _cross_validations(runs)
    folder.mkdir(parents=True, exist_ok=True)
    networks: dict[str, list[Run]] = {}
    for x in found.variants:
        # Folds part the images of one network.
        label = re.sub(r" ?\bfold=\(\d+, (\d+)\)", r", \1 folds", x.label).lstrip(" ,")
        networks.setdefault(label, []).extend(Run(Path(run)) for run in x.folders)
    facts = {label: _facts(each, pooled) for label, each in networks.items()}
    apart = Comparison(tuple(x for x in found.variants if not _pooled_of(x.folders[0], pooled)))
    rows = [row for each in pooled.values() for row in each.rows] + [*map(_row, apart.variants)]
    cited: set[str] = set()
    for ending, escapes in ((".md", MARKDOWN), (".tex", TEX)):
        templates = _templates(escapes, ending, cited)
        write_whole(folder / f"methods{ending}", _methods(templates, ending, facts))
        content = _table(rows, _caption(apart, pooled.values()))
        table = templates.get_template(f"table{ending}").render(content)
        write_whole(folder / f"table{ending}", table)
    write_whole(folder / "table.csv", _csv(rows))
    used = (text for key, text in sorted(_entries().items()) if key in cited)
    write_whole(folder / "references.bib", "\n".join(used))
    if figures:
        for number, each in enumerate(networks.values(), 1):
            figures_of = folder / "figures" / str(number)
            evaluate_file(str(each[0].folder), root=root, figures=figures_of)
        for ending in (".svg", ".pdf") if apart.variants else ():
            write_figure(apart.figure(), folder / "figures" / f"accuracy{ending}")
    return folder


def _templates(escapes: Mapping[str, str], ending: str, cited: set[str]) -> jinja2.Environment:
    """Make templates that escape what is put into them, and note what they cite."""
    table = str.maketrans(dict(escapes))

    def escaped(value: object) -> object:
        if isinstance(value, Markup):
            return value
        text = f"{value:,}" if type(value) is int else str(value)
        return printable(text, keep="").translate(table)

    def cite(name: str) -> Markup:
        keys = _papers_of(name)
        cited.update(keys)
        tex = f"~\\cite{{{','.join(keys)}}}"
        text = tex if ending == ".tex" else f" [@{'; @'.join(keys)}]"
        return Markup(text if keys else "")

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("torchcaps.study"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=escaped,
    )
    made.globals |= {"cite": cite, "percent": lambda x: f"{100 * x:.4g} %", "in_words": in_words}
    return made


def _entries() -> dict[str, str]:
    """Read references.bib, each entry by its key."""
    text = (FOLDER / "references.bib").read_text("utf-8")
    return {
        key: entry for entry, key in re.findall(r"^(@\w+\{(\w+),\n.*?^\}\n)", text, re.M | re.S)
    }


def _papers_of(name: str) -> list[str]:
    """Find the keys of what a network, data set, routing or optimiser is from; a key stays one."""
    if name in MODELS:
        return re.findall(r"\b[a-z]+(?:19|20)\d\d\b", MODELS[name].source)
    if name in _entries():
        return [name]
    known = {
        word: key
        for key, entry in _entries().items()
        for words in re.findall(r"^  keywords *= \{(.*)\}", entry, re.M)
        for word in words.split(", ")
        if f"{name}-".startswith(f"{word}-")
    }
    return [known[max(known, key=len)]] if known else []


def _cross_validations(runs: Sequence[str | os.PathLike[str]]) -> dict[Path, Pooled]:
    """Read what `crossval` wrote of all folds together, by its folder."""
    found = {}
    for file in (Path(run) / WRITTEN for run in runs if (Path(run) / WRITTEN).is_file()):
        try:
            numbers = read_json(file)
            folds, pairs, words = (numbers[k] for k in ("folds", "comparisons", "words"))
            over = "groups of images" if "groups" in folds[0] else "images"
            kinds = (key for key in folds[0] if key.startswith("of "))
            images = [f"{sum(fold[kind] for fold in folds):,} {kind}" for kind in kinds]
            rows = [
                Row(x["label"], f"{len(folds)} folds", over, _measured(x["measures"]), x["recipe"])
                for x in numbers["networks"]
            ]
            notes = [
                f"{' less '.join(x['networks'])}: {name}, {how}: {test_in_words(x[test])}"
                for x in pairs
                for test, (name, how) in TESTS.items()
            ]
        except (ValueError, LookupError, TypeError, AttributeError):
            raise damaged(file, "it is not as crossval wrote it") from None
        # The last words repeat the first test of each pair.
        said = [*words[: len(words) - len(pairs)], *notes]
        found[file.parent.resolve()] = Pooled(rows, said, len(pairs), images)
    return found


def _measured(measures: Mapping[str, Any]) -> dict[str, Interval]:
    """Read measures with their intervals, in percent; each is one value, of all images."""
    found = {}
    for name in (ACCURACY, *MEASURES):
        each = measures.get(name, {})
        if each.get("value") is not None:
            low, high = [100 * x for x in each["interval"] or ()] or [None, None]
            found[name] = Interval(100 * each["value"], low, high, 1)
    return found


def _pooled_of(run: str | os.PathLike[str], pooled: Mapping[Path, Pooled]) -> Pooled | None:
    """Find the cross-validation that a run is a fold of."""
    found, recipe = pooled.get(Path(run).parent.resolve()), Run(Path(run)).recipe
    whole = recipe.model_dump(mode="json") | {"fold": None}
    return found if found and whole in [row.recipe for row in found.rows] else None


def _facts(runs: Sequence[Run], pooled: Mapping[Path, Pooled]) -> dict[str, Any]:
    """Gather what is known of runs that differ in their seed or fold alone."""
    recipe, preset = runs[0].recipe, MODELS.get(runs[0].recipe.model)
    # What sentences tell; of the other fields, those that are not as by default are listed.
    text = (FOLDER / "templates" / "methods.txt").read_text("utf-8")
    told = {"seed", "loss", *re.findall(r"f\.recipe\.(\w+)", text)}
    by_default = {name: each.default for name, each in type(recipe).model_fields.items()}
    rest = {k: x for k, x in recipe if k not in told and x != by_default[k]}
    facts: dict[str, Any] = {"parameters": None, "shape": None, "draws": False}
    loss = recipe.loss
    try:
        network: Any = runs[0].model()
        facts["parameters"] = f"{sum(each.numel() for each in network.parameters()):,}"
        facts["shape"] = " × ".join(map(str, network.config["image"]))
        with torch.inference_mode():
            out = network.eval()(torch.zeros(1, *network.config["image"]))
        loss = FITTING[out.scores_are] if loss == "auto" else loss
        facts["draws"] = out.reconstruction is not None
    except (TorchcapsError, TypeError):
        # One of the user's own, whose file does not say how it is made.
        pass
    return facts | {
        "recipe": recipe,
        "loss": LOSSES[loss],
        "runs": runs,
        # Of several seeds the first.
        "folds": list({each.recipe.fold: each for each in reversed(runs)}.values())[::-1],
        "result": runs[0].result(),
        "about": [
            {**each.about(), "commits": each.commits()} if each.environment_file.is_file() else {}
            for each in runs
        ],
        "root": runs[0].root,
        "pooled": _pooled_of(runs[0].folder, pooled),
        "routing": recipe.options.get("routing")
        or (preset and (preset.options.get("routing") or preset.fixed_routing)),
        "optimiser": OPTIMISERS[recipe.optimiser][0],
        "rest": [f"{name} = {value}" for name, value in rest.items()],
        "seconds": duration(sum(each.seconds for each in runs)),
    }


def _methods(made: jinja2.Environment, ending: str, facts: Mapping[str, dict[str, Any]]) -> str:
    """Write a paragraph a topic; what differs from network to network stands behind its name."""
    macros, found = made.get_template("methods.txt").module, []
    escaped: Any = made.finalize
    for topic in TOPICS:
        texts = {k: " ".join(getattr(macros, topic)(f).split()) for k, f in facts.items()}
        if not any(texts.values()):
            continue
        if len(set(texts.values())) > 1:
            texts = {k: f"{escaped(k)}: {text}" for k, text in texts.items() if text}
        title = f"{topic.capitalize()}."
        head = f"\\paragraph{{{title}}}" if ending == ".tex" else f"**{title}**"
        found.append(" ".join([head, *dict.fromkeys(texts.values())]) + "\n")
    return "\n".join(found)


def _row(variant: Variant) -> Row:
    """Take intervals over seeds, or of one run those over test images that it wrote down."""
    n = len(variant.seeds)
    result = Run(Path(variant.folders[0])).result()
    of_one = _measured(result.get("measures", {})) if n == 1 else {}
    found = {name: of_one.get(name) or variant.interval(name) for name in variant.values}
    statistics = {name: x for name, x in found.items() if x is not None}
    return Row(variant.label, n, "seeds" if n > 1 else "test images", statistics)


def _caption(apart: Comparison, pooled: Iterable[Pooled]) -> str:
    """Say what the numbers are and what they have to beat; of folds also what the tests found."""
    lines = ["Shares of the test images in percent"]
    for each in pooled:
        of_all = "Of folds all test images together, and in brackets 95 % intervals over"
        lines += [f"{of_all} {each.rows[0].over}", *(note.rstrip(".") for note in each.notes)]
    if apart.variants:
        lines.append(
            "In brackets: of several seeds the 95 % t-interval of the mean over trainings, of one "
            "seed the 95 % interval over test images"
        )
    lines += [f"{x[0].upper()}{x[1:]}" for x in [*apart.to_beat(), *apart.constants()]]
    return ". ".join(lines) + "."


def _table(rows: Sequence[Row], caption: str) -> dict[str, Any]:
    """Make head and rows of the table: accuracy and the measures of classes."""
    named = {name for row in rows for name in row.statistics}
    names = [name for name in (ACCURACY, *MEASURES) if name in named]
    head = ["", "runs", *(MEASURES[x].words if x in MEASURES else x for x in names)]
    cells = []
    for row in rows:
        n = row.runs if isinstance(row.runs, int) else 1
        means = [Markup(mean_in_words(row.statistics.get(name), n)) for name in names]
        cells.append([row.label, row.runs, *means])
    return {"head": head, "rows": cells, "caption": caption}


def _csv(rows: Sequence[Row]) -> str:
    """Write a line for every network and every statistic that it has."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["network", "statistic", "unit", "mean", "low", "high", "interval over", "n"])
    for row in rows:
        for name, x in row.statistics.items():
            ends = (x.low, x.high, row.over if x.low is not None else None, x.n)
            unit = "%" if is_share(name) else None
            table.writerow(map(as_cell, (row.label, name, unit, x.mean, *ends)))
    return text.getvalue()
