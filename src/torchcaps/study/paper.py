"""What a paper says of runs: methods, table, references and figures, from their records alone."""

import csv
import io
import os
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from torchcaps._paths import path_of, write_whole
from torchcaps._printable import printable
from torchcaps.analysis.shares import wilson
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
from torchcaps.study.intervals import Interval
from torchcaps.tasks.evaluate import evaluate_file
from torchcaps.tasks.predictions import as_cell
from torchcaps.train import Run
from torchcaps.train.class_measures import MEASURES
from torchcaps.train.optimiser import OPTIMISERS
from torchcaps.train.selecting import in_words

# How signs are written that LaTeX or Markdown would take for its own. After the end of a row a
# bracket would be a length in LaTeX, and a star no star.
TEX = {each: rf"\{each}" for each in "&%$#_{}"} | {each: f"{{{each}}}" for each in "[]*"}
TEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
TEX |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "–": "--"}
MARKDOWN = {each: f"\\{each}" for each in "\\`*_{}[]<>|#&$~"}
FOLDER = resources.files("torchcaps.study")
TOPICS = ("data", "images", "network", "training", "stopping", "hardware")


def write_paper(
    runs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    root: Path | None = None,
    figures: bool = True,
) -> Path:
    """Write what a paper says of finished runs into a folder: methods.md and .tex, table.md, .tex
    and .csv, references.bib, and figures. The same runs give the same bytes.

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
    folder.mkdir(parents=True, exist_ok=True)
    networks: dict[str, list[Run]] = {}
    for x in found.variants:
        # Folds part the images of one network.
        label = re.sub(r" ?\bfold=\(\d+, (\d+)\)", r", \1 folds", x.label).lstrip(" ,")
        networks.setdefault(label, []).extend(Run(Path(run)) for run in x.folders)
    facts = {label: _facts(each) for label, each in networks.items()}
    cited: set[str] = set()
    for ending, escapes in ((".md", MARKDOWN), (".tex", TEX)):
        templates = _templates(escapes, ending, cited)
        write_whole(folder / f"methods{ending}", _methods(templates, ending, facts))
        table = templates.get_template(f"table{ending}").render(_table(found))
        write_whole(folder / f"table{ending}", table)
    write_whole(folder / "table.csv", _csv(found))
    used = (text for key, text in sorted(_entries().items()) if key in cited)
    write_whole(folder / "references.bib", "\n".join(used))
    if figures:
        for number, each in enumerate(networks.values(), 1):
            figures_of = folder / "figures" / str(number)
            evaluate_file(str(each[0].folder), root=root, figures=figures_of)
        for ending in (".svg", ".pdf"):
            write_figure(found.figure(), folder / "figures" / f"accuracy{ending}")
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
    """Find the keys of what a network, a data set, a routing or an optimiser is from."""
    if name in MODELS:
        return re.findall(r"\b[a-z]+(?:19|20)\d\d\b", MODELS[name].source)
    known = {
        word: key
        for key, entry in _entries().items()
        for words in re.findall(r"^  keywords *= \{(.*)\}", entry, re.M)
        for word in words.split(", ")
        if f"{name}-".startswith(f"{word}-")
    }
    return [known[max(known, key=len)]] if known else []


def _facts(runs: Sequence[Run]) -> dict[str, Any]:
    """Gather what is known of runs that differ in their seed or fold alone."""
    recipe, preset = runs[0].recipe, MODELS.get(runs[0].recipe.model)
    # What sentences tell; of the other fields, those that are not as by default are listed.
    text = (FOLDER / "templates" / "methods.txt").read_text("utf-8")
    told = {"seed", *re.findall(r"f\.recipe\.(\w+)", text)}
    by_default = {name: each.default for name, each in type(recipe).model_fields.items()}
    rest = {k: x for k, x in recipe if k not in told and x != by_default[k]}
    facts: dict[str, Any] = {"parameters": None, "shape": None}
    try:
        network: Any = runs[0].model()
        facts["parameters"] = f"{sum(each.numel() for each in network.parameters()):,}"
        facts["shape"] = " × ".join(map(str, network.config["image"]))
    except (TorchcapsError, TypeError):
        # One of the user's own, whose file does not say how it is made.
        pass
    return facts | {
        "recipe": recipe,
        "runs": runs,
        # Of several seeds the first.
        "folds": list({each.recipe.fold: each for each in reversed(runs)}.values())[::-1],
        "result": runs[0].result(),
        "about": [
            {**each.about(), "commits": each.commits()} if each.environment_file.is_file() else {}
            for each in runs
        ],
        "root": runs[0].root,
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
        if len(set(texts.values())) > 1:
            texts = {k: f"{escaped(k)}: {text}" for k, text in texts.items()}
        title = f"{topic.capitalize()}."
        head = f"\\paragraph{{{title}}}" if ending == ".tex" else f"**{title}**"
        found.append(" ".join([head, *dict.fromkeys(texts.values())]) + "\n")
    return "\n".join(found)


def _interval(variant: Variant, name: str) -> Interval | None:
    """Take that over seeds; of one run that over its test images, where it wrote one down."""
    found, result = variant.interval(name), Run(Path(variant.folders[0])).result()
    if found is None or len(variant.seeds) > 1:
        return found
    ends = result.get("measures", {}).get(name, {}).get("interval")
    if name == ACCURACY and (n := result.get("test_images")):
        ends = wilson(round(result["test_accuracy"] * n), n)
    return found if ends is None else found._replace(low=100 * ends[0], high=100 * ends[1])


def _table(found: Comparison) -> dict[str, Any]:
    """Make head, rows and caption of the table: accuracy and the measures of classes."""
    names = [name for name in found.statistics if name in (ACCURACY, *MEASURES)]
    head = ["", "seeds", *(MEASURES[x].words if x in MEASURES else x for x in names)]
    rows = []
    for each in found.variants:
        n = len(each.seeds)
        cells = [Markup(mean_in_words(_interval(each, name), n)) for name in names]
        rows.append([each.label, n, *cells])
    caption = [
        "Shares of the test images in percent. In brackets: of several seeds the 95 % t-interval "
        "of the mean over trainings, of one seed the 95 % interval over test images",
        *(f"{line[0].upper()}{line[1:]}" for line in [*found.to_beat(), *found.constants()]),
    ]
    return {"head": head, "rows": rows, "caption": ". ".join(caption) + "."}


def _csv(found: Comparison) -> str:
    """Write a line for every network and every statistic that it has."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["network", "statistic", "unit", "mean", "low", "high", "interval over", "n"])
    for each in found.variants:
        over = "seeds" if len(each.seeds) > 1 else "test images"
        for name in each.values:
            if (x := _interval(each, name)) is not None:
                ends = (x.low, x.high, over if x.low is not None else None, x.n)
                unit = "%" if is_share(name) else None
                table.writerow(map(as_cell, (each.label, name, unit, x.mean, *ends)))
    return text.getvalue()
