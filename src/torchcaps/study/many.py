"""One recipe many times: over seeds, and over several values of options."""

import itertools
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps._words import value_of
from torchcaps.errors import TorchcapsError, short
from torchcaps.models import MODELS
from torchcaps.models.registry import check_made, check_options
from torchcaps.study.ledger import Ledger
from torchcaps.study.system import LAST_SEED, MOST_SEEDS, Study, System
from torchcaps.study.work import Terms, finish, finish_together
from torchcaps.train import Recipe, Run
from torchcaps.train.images import images_of

if TYPE_CHECKING:
    from torchcaps.study.comparison import Comparison


def seeds_in(text: str) -> tuple[int, ...]:
    """Read the seeds that a text names: a range, "0-4", or a list, "0,2,5".

    >>> seeds_in("0-4")
    (0, 1, 2, 3, 4)
    """
    seeds: Sequence[int] = ()
    if found := re.fullmatch(r"(\d{1,10})-(\d{1,10})", text):
        seeds = range(int(found[1]), int(found[2]) + 1)
    elif re.fullmatch(r"\d{1,10}(,\d{1,10})*", text):
        seeds = tuple(dict.fromkeys(map(int, text.split(","))))
    if not seeds:
        raise TorchcapsError(
            f"--seeds must be a range from low to high or a list, for example 0-4 or 0,2,5, but "
            f"came as {short(text)}."
        )
    if len(seeds) > MOST_SEEDS:
        raise TorchcapsError(
            f"--seeds {text} names {len(seeds):,} seeds, and at most {MOST_SEEDS:,} are trained in "
            f"one call; is the range right?"
        )
    if max(seeds) > LAST_SEED:
        raise TorchcapsError(
            f"--seeds must name seeds from 0 to {LAST_SEED}, but {max(seeds)} is beyond; was a "
            f"digit typed twice?"
        )
    return tuple(seeds)


def swept_options(recipe: Recipe) -> dict[str, list[Any]]:
    """Find the options of a recipe that were given several values: iterations="1,2,3".

    An option that is a list itself, as widths="16,16", has one value.
    """
    known = MODELS[recipe.model].options if recipe.model in MODELS else {}
    return {
        # A value that is typed twice is one variant.
        name: [value_of(word) for word in dict.fromkeys(value.split(","))]
        for name, value in recipe.options.items()
        if isinstance(value, str) and "," in value and "," not in str(known.get(name, ""))
    }


def train_many(
    recipe: Recipe,
    out: str | os.PathLike[str],
    *,
    seeds: Sequence[int] = (),
    root: str | os.PathLike[str] | None = None,
    time_budget: float | None = None,
    together: bool = False,
) -> "Comparison":
    """Train a recipe for every seed and every value of `swept_options`, one run after the other or
    together, as `train.fit_many` does, and compare the runs. The same call continues what was
    stopped, also when the seconds of its time budget are over, and trains nothing twice."""
    # Its intervals need scipy: without it this fails before anything is trained.
    from torchcaps.study.comparison import compare

    swept = swept_options(recipe)
    if Run(Path(out)).recipe_file.is_file():
        raise TorchcapsError(
            f"{out} is a run, where several seeds or values need a folder of runs; choose another."
        )
    systems = []
    variants = [dict(zip(swept, each, strict=True)) for each in itertools.product(*swept.values())]
    for chosen in variants:
        one = recipe.model_copy(update={"options": {**recipe.options, **chosen}})
        check_options(one.model, one.options)
        systems.append(System(one.model, one, tuple(seeds) or (recipe.seed,), looks=()))
    if len(systems) > 1:
        _check_made(recipe, variants, root)
    terms = Terms(root, None if time_budget is None else time.time() + time_budget)
    ledger = Ledger(Path(out))
    cells = Study("many", tuple(systems)).cells()
    if together:
        for error in finish_together(cells, ledger, terms).values():
            raise error
    else:
        for cell in cells:
            finish(cell, ledger, terms)
    return compare([ledger.run(cell).folder for cell in cells])


def _check_made(
    recipe: Recipe, variants: Sequence[dict[str, Any]], root: str | os.PathLike[str] | None
) -> None:
    """Refuse values of which no network can be made for these images, before any is trained."""
    images = images_of(recipe, "train", root=root)
    for chosen in variants:
        try:
            check_made(
                recipe.model,
                {**recipe.options, **chosen},
                image=images.image_shape,
                n_classes=len(images.class_names),
            )
        except TorchcapsError as error:
            values = ", ".join(f"{name}={value}" for name, value in chosen.items())
            raise TorchcapsError(f"{values}: {error}") from None
