"""Cross-validation: every image is judged once, by a network that saw neither it nor its group."""

import itertools
import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchcaps._checks import check_count
from torchcaps._paths import path_of, write_whole
from torchcaps.analysis.shares import constant_answer
from torchcaps.data import ImageSet
from torchcaps.data import folds as folds_of
from torchcaps.data.folds import fold_numbers
from torchcaps.data.read.grouping import suggested
from torchcaps.data.read.listed import Listed, listed
from torchcaps.data.registry import Root
from torchcaps.errors import TorchcapsError
from torchcaps.models import MODELS
from torchcaps.study.comparison import duration, labels_of
from torchcaps.study.cost import hours_on_two_cores
from torchcaps.study.paired import delong, holm, mcnemar, over_folds
from torchcaps.study.twin import of_network, parameters_of, plain_twin
from torchcaps.tasks import estimate, evaluate
from torchcaps.tasks.evaluation import Evaluation
from torchcaps.tasks.predictions import as_csv, rows_of
from torchcaps.tasks.tables import aligned, in_columns
from torchcaps.tasks.trained import to_accelerator
from torchcaps.train import Recipe, fit
from torchcaps.train.class_measures import MEASURES, macro_values
from torchcaps.train.grouped import as_listed
from torchcaps.train.images import Source
from torchcaps.types import Output

# Said in place of a network's name: the plain twin of a capsule network.
MATCHED = "matched"
Others = Sequence[str | Recipe]
# What of a recipe has no place here, with the value that it must keep.
IDLE = {"fold": None, "test_data": None, "stop_on": "validation"}
TESTS = {
    "balanced_accuracy": ("balanced accuracy", "over the folds"),
    "auroc": ("AUROC", "DeLong"),
    "accuracy": ("accuracy", "McNemar"),
}
# A smaller p is called more than chance.
SURE = 0.05
WRITTEN = "crossval.json"


@dataclass(frozen=True)
class Plan:
    """Networks, and the folds of the images that they are trained and tested on."""

    name: str
    images: Listed
    fold_of: NDArray[np.intp]  # [n], counted from 0
    shape: tuple[int, int, int]
    # Of each its label, its recipe, and how many parameters it has without a decoder.
    networks: tuple[tuple[str, Recipe, int], ...]

    @property
    def tests(self) -> list[NDArray[np.intp]]:
        """List the numbers of the images that each fold tests."""
        return [np.flatnonzero(self.fold_of == fold) for fold in range(self.fold_of.max() + 1)]

    def folds(self) -> list[dict[str, Any]]:
        labels, groups, rows = np.array(self.images.labels), np.array(self.images.groups or ()), []
        for at, test in enumerate(self.tests, 1):
            row = {"fold": at, "images": len(test)}
            if len(groups):
                row["groups"] = len(set(groups[test]))
            names = enumerate(self.images.class_names)
            rows.append(row | {f"of {name}": int((labels[test] == k).sum()) for k, name in names})
        return rows

    def costs(self) -> list[dict[str, Any]]:
        rows, names, folds = [], self.images.class_names, len(self.tests)
        for label, recipe, parameters in self.networks:
            size: dict[str, Any] = {"image": self.shape, "n_classes": len(names)}
            took = estimate(recipe.model, **size, batch_size=recipe.batch_size, **recipe.options)
            images = len(self.fold_of) * (1 - 1 / folds) * (1 - recipe.validation_share)
            images = min(images, recipe.train_images or math.inf)
            steps = recipe.epochs * math.ceil(images / recipe.batch_size)
            hours = round(hours_on_two_cores(steps, steps * took.flops_step), 4)
            cost = {"steps": steps, "GB": round(took.training.process / 1e9, 2), "hours": hours}
            rows.append({"network": label, "parameters": parameters, **cost})
        return rows

    def numbers(self) -> dict[str, Any]:
        return {"data": self.name, "folds": self.folds(), "costs": self.costs()}

    def text(self) -> str:
        """Say the same for people, and what all of it takes."""
        numbers, folds, lines = self.numbers(), len(self.tests), [self.subject()]
        for rows in (numbers["folds"], numbers["costs"]):
            lines += ["", *aligned({key: [str(row[key]) for row in rows] for key in rows[0]})]
        took = duration(3600 * folds * sum(row["hours"] for row in numbers["costs"]))
        runs = f"the steps of {folds * len(self.networks)} runs take about {took} on two cores"
        return "\n".join([*lines, "", f"{runs}; none has begun"])

    def subject(self) -> str:
        """Say which images there are and how they are parted."""
        parted, groups = f"{len(self.tests)} folds", self.images.groups
        by = "no fold parts a group" if groups else "nobody said which images belong together"
        parted = f"{len(set(groups)):,} groups, {parted}" if groups else parted
        return f"{self.name}: {len(self.fold_of):,} images, {parted}; {by}"


@dataclass(frozen=True)
class CrossValidation:
    """What each network says of all images, none of which it was trained on."""

    plan: Plan
    judged: tuple[Evaluation, ...]

    def by_fold(self, found: Evaluation) -> list[float | None]:
        """Take the balanced accuracy of each fold."""
        outs = [(Output(found.scores[at], found.scores_are), at) for at in self.plan.tests]
        return [macro_values(out, found.labels[at]).get("balanced_accuracy") for out, at in outs]

    def comparisons(self) -> list[dict[str, Any]]:
        """Test every pair of networks; p_corrected is p for as many pairs as there are."""
        rows: list[dict[str, Any]] = []
        pairs = itertools.combinations(zip(self.plan.networks, self.judged, strict=True), 2)
        for ((first, *_), one), ((second, *_), two) in pairs:
            outs = [Output(each.scores, each.scores_are) for each in (one, two)]
            found = (
                over_folds(self.by_fold(one), self.by_fold(two)),
                delong(outs[0], outs[1], one.labels, one.groups),
                mcnemar(one.right, two.right, one.groups),
            )
            rows.append({"networks": (first, second), **dict(zip(TESTS, found, strict=True))})
        for test in TESTS:
            for row, p in zip(rows, holm([row[test].p for row in rows]), strict=True):
                row[test] = {**row[test]._asdict(), "p_corrected": p}
        return rows

    def numbers(self) -> dict[str, Any]:
        """Give everything, as JSON has it."""
        networks = []
        for (label, recipe, size), found in zip(self.plan.networks, self.judged, strict=True):
            about = {"label": label, "recipe": recipe.model_dump(mode="json"), "parameters": size}
            by_fold = {"balanced_accuracy_by_fold": self.by_fold(found)}
            networks.append({**about, **by_fold, **found.numbers()})
        rest = {"comparisons": self.comparisons(), "words": self.words()}
        return {"data": self.plan.name, "folds": self.plan.folds(), "networks": networks, **rest}

    def text(self) -> str:
        """Say the same for people: a table, the tests, and what follows."""
        line, networks, compared = self.judged[0].commonest, self.plan.networks, self.comparisons()
        measured = [each.measures.macro for each in self.judged]
        rows = [
            ["", *(label for label, *_ in networks)],
            ["parameters", *(f"{size:,}" for *_, size in networks)],
            *([kind.words, *(x[k].cell() for x in measured)] for k, kind in MEASURES.items()),
            [
                f"accuracy, to beat {line.share:.1%}",
                *(x.measures.accuracy.cell() for x in self.judged),
            ],
        ]
        over = "images" if self.judged[0].groups is None else "groups of images"
        notes = [f"in brackets: 95 % intervals over {over}"]
        for row in compared:
            notes += ["", " less ".join(row["networks"])]
            tests = [(*names, test_in_words(row[test])) for test, names in TESTS.items()]
            notes += in_columns(tests, margin="    ")
        if compared:
            notes.append("only the test over the folds knows that trainings vary")
        if len(compared) > 1:
            notes.append(f"each p is corrected for {len(compared)} pairs (Holm)")
        parts = [self.plan.subject(), "", *in_columns(rows), *notes, "", "In words"]
        return "\n".join([*parts, *(f"    {each}" for each in self.words())])

    def words(self) -> list[str]:
        """Say the line to beat, and what is more than chance."""
        line, names = self.judged[0].commonest, self.judged[0].class_names
        beat, least = f"always saying {line.name!r} has an accuracy", 1 / len(names)
        said = [f"To beat: {beat} of {line.share:.1%} and a balanced one of {least:.1%}."]
        for (label, *_), found in zip(self.plan.networks, self.judged, strict=True):
            measure, more = found.measures.macro["balanced_accuracy"], found.accuracy - line.share
            known = "" if measure.interval and measure.interval[0] > least else "not shown to be "
            lies = f"{abs(100 * more):.1f} points {'below' if more < 0 else 'above'}"
            said.append(
                f"{label} is {known}better than that by balanced accuracy, {measure.cell()} "
                f"against {least:.1%}; its accuracy lies {lies} {line.share:.1%}."
            )
            tests = enumerate(self.plan.tests, 1)
            always = {at: constant_answer(found.said[x].sum(0), len(x), names) for at, x in tests}
            for answer in sorted({each for each in always.values() if each is not None}):
                folds = ", ".join(str(at) for at, each in always.items() if each == answer)
                said.append(f"{label} says {answer!r} of every image of these folds: {folds}.")
        for row in self.comparisons():
            test, (one, two) = row["balanced_accuracy"], row["networks"]
            who = f"{one if (test['difference'] or 0) > 0 else two} is"
            if test["p_corrected"] is None or test["p_corrected"] >= SURE:
                who = f"neither {one} nor {two} is shown to be"
            said.append(f"By balanced accuracy over the folds {who} ahead: {test_in_words(test)}.")
        return said

    def write(self, out: Path) -> None:
        """Write crossval.json, and predictions.csv with a line for each network and image."""
        write_whole(out / WRITTEN, json.dumps(self.numbers(), indent=1, allow_nan=False))
        rows = []
        for (label, *_), found in zip(self.plan.networks, self.judged, strict=True):
            groups = found.groups or [""] * len(found.right)
            about = zip((self.plan.fold_of + 1).tolist(), groups, rows_of(found), strict=True)
            rows += [{"network": label, "fold": at, "group": g, **row} for at, g, row in about]
        write_whole(out / "predictions.csv", as_csv(rows, self.judged[0].class_names))


def crossval(
    recipe: Recipe,
    out: Root,
    *,
    root: Root | None = None,
    own: ImageSet | None = None,
    folds: int = 5,
    against: Others = (MATCHED,),
) -> CrossValidation:
    """Train a network and what it is compared with on every fold, each of which is a run; judge
    each image once; test which network is ahead. The same call goes on with what was stopped.

    Arguments:
        recipe: of the network; its data is "folder" or "own".
        out: the folder of the runs, of crossval.json and of predictions.csv.
        root: the folder of the pictures.
        own: images of your own, for a recipe with data "own".
        folds: how many; no group is parted by them.
        against: what it is compared with: "matched", a plain network on the same backbone or of its
            size; names of networks; recipes; nothing where it is empty.

    >>> print(crossval(recipe, "folds", root="pictures").text())  # doctest: +SKIP
    """
    plan, out = plan_of(recipe, root, own, folds, against), path_of("out", out)
    pairs = [None] * folds if own is None else folds_of(own, folds)
    found: list[list[Evaluation]] = [[] for _ in plan.networks]
    # Fold by fold, so that after a stop all networks have been trained on the same folds.
    for fold, (at, (label, one, _)) in itertools.product(range(folds), enumerate(plan.networks)):
        if own is None:
            one = one.model_copy(update={"fold": (fold + 1, folds)})
        source = Source(one, root, pairs[fold], None)
        run = fit(
            one,
            out / f"{at + 1}-{one.model}-fold-{fold + 1}-of-{folds}",
            root=root,
            own=pairs[fold],
            label=f"{label}, fold {fold + 1} of {folds}",
        )
        if run.image_digests()["test"] != source.test.digest():
            raise TorchcapsError(
                f"{run.folder} is done, and its fold has other images now; put them back as they "
                f"were, or choose another folder."
            )
        size = min(100, one.batch_size)
        found[at].append(evaluate(to_accelerator(run.model()), source.test, batch_size=size))
    done = CrossValidation(plan, tuple(_joined(each, plan) for each in found))
    done.write(out)
    return done


def plan_of(
    recipe: Recipe, root: Root | None, own: ImageSet | None, folds: int, against: Others
) -> Plan:
    """Choose folds and networks, before anything is trained, as `crossval` is told."""
    check_count("folds", folds, of="folds", least=2)
    for field in (name for name, kept in IDLE.items() if getattr(recipe, name) != kept):
        raise TorchcapsError(
            f"{field} has no place in cross-validation, which tests every image once and chooses "
            f"nothing by that; leave it out."
        )
    if own is not None:
        name, images, source = own.name, as_listed(own), Source(recipe, None, (own, own), None)
    elif recipe.data == "folder" and root is not None:
        home, first = path_of("root", root), recipe.model_copy(update={"fold": (1, folds)})
        images = listed(home, "train", groups=recipe.groups, fold=(0, folds))
        name, source = home.resolve().name, Source(first, root, None, None)
    else:
        raise TorchcapsError(
            "cross-validation parts a folder of pictures, --data folder --root FOLDER, or in "
            'Python images of your own, own=images, for a recipe with data "own".'
        )
    n_classes, files = len(images.class_names), images.files
    fold_of = fold_numbers(name, images.groups, images.labels, images.class_names, folds)
    if images.groups is None and files:
        is_tested = fold_of == 0
        sides = [[files[at] for at in np.flatnonzero(side)] for side in (~is_tested, is_tested)]
        if hint := suggested(sides[0], sides[1], n_classes):
            logging.getLogger("torchcaps").warning("%s", hint.text())
    shape, recipes, preset = source.test.image_shape, [recipe], MODELS[recipe.model]
    for each in against:
        if isinstance(each, Recipe):
            recipes.append(each)
        elif each != MATCHED:
            recipes.append(of_network(recipe, each, {}))
        elif preset.routes or preset.is_own:
            recipes.append(plain_twin(recipe, shape, n_classes))
    sizes = [parameters_of(each, shape, n_classes) for each in recipes]
    networks = zip(labels_of(recipes), recipes, sizes, strict=True)
    return Plan(name, images, fold_of, shape, tuple(networks))


def _joined(parts: Sequence[Evaluation], plan: Plan) -> Evaluation:
    """Put what the folds say together, in the order of the images."""
    order = torch.from_numpy(np.concatenate(plan.tests).argsort())
    fields = ("scores", "labels", "said", "right")
    whole: dict[str, Any] = {k: torch.cat([vars(x)[k] for x in parts])[order] for k in fields}
    whole["loss"] = sum(len(each.right) * each.loss for each in parts) / len(order)
    return replace(parts[0], **whole, files=plan.images.files or None, groups=plan.images.groups)


def test_in_words(test: dict[str, Any]) -> str:
    """Say what a test found."""
    if test["difference"] is None:
        return f"no test, because {test['why']}"
    said, p = f"{100 * test['difference']:+.1f} points", test["p_corrected"]
    if test["interval"] is not None:
        said += " [{:+.1f}, {:+.1f}]".format(*(100 * end for end in test["interval"]))
    if test["alone"] is not None:
        said += " (right alone: {:,} and {:,})".format(*test["alone"])
    if p is None:
        return f"{said}, no p, because {test['why']}"
    return f"{said}, p {'< 0.001' if p < 0.001 else f'= {p:.3f}'}"
