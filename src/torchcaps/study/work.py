"""One worker: it takes the next cell that nobody has, trains it, measures it, and goes on."""

import os
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any

from torchcaps.errors import Diverged, Emptied, Interrupted, TorchcapsError
from torchcaps.study.ledger import Ledger
from torchcaps.study.measure import images_of_others, look_at, root_of, trunk_file
from torchcaps.study.system import Cell
from torchcaps.train import Run, fit
from torchcaps.train.many import outcomes

# A worker takes cells in these states.
OPEN = ("waiting", "begun")


def finish(
    cell: Cell,
    ledger: Ledger,
    *,
    root: str | os.PathLike[str] | None,
    until: float | None = None,
) -> None:
    """Train a cell, or go on with it, and take every look that is missing."""
    run = fit(**_call(cell, ledger, root=root, until=until))
    _look(cell, ledger, run, root=root, until=until)


def finish_together(
    cells: Sequence[Cell],
    ledger: Ledger,
    *,
    root: str | os.PathLike[str] | None,
    until: float | None = None,
) -> dict[str, Exception]:
    """Train several cells at once, and look at each; with the errors of those that failed."""
    failed: dict[str, Exception] = {}
    ended = outcomes([_call(cell, ledger, root=root, until=until) for cell in cells])
    for cell, outcome in zip(cells, ended, strict=True):
        try:
            if isinstance(outcome, Exception):
                raise outcome
            _look(cell, ledger, outcome, root=root, until=until)
        except Exception as error:
            failed[cell.name] = error
    return failed


def _call(
    cell: Cell, ledger: Ledger, *, root: str | os.PathLike[str] | None, until: float | None
) -> dict[str, Any]:
    """Give what `fit` is called with."""
    recipe = cell.recipe
    return {
        "recipe": recipe,
        "out": ledger.run(cell).folder,
        "root": root_of(recipe.data, root) or root_of(recipe.test_data or recipe.data, root),
        "label": cell.name,
        "time_budget": _left(until),
        "trunk": trunk_file(recipe, root),
    }


def _look(
    cell: Cell,
    ledger: Ledger,
    run: Run,
    *,
    root: str | os.PathLike[str] | None,
    until: float | None,
) -> None:
    """Take every look that is missing."""
    for look in ledger.missing(cell):
        values = look_at(run, look, root=root, time_budget=_left(until))
        ledger.write(cell, look, values, images=images_of_others(run, look, root=root))


def _left(until: float | None) -> float | None:
    """Say how many seconds of the time budget are left."""
    left = None if until is None else until - time.time()
    if left is not None and left <= 0:
        raise Interrupted("the time budget is used up; the same command goes on.")
    return left


def work(
    cells: Sequence[Cell],
    ledger: Ledger,
    *,
    root: str | os.PathLike[str] | None,
    until: float | None = None,
    parent: int | None = None,
    together: int = 1,
) -> None:
    """Work through cells until none is left that this process can take.

    Arguments:
        cells: in the order in which they are taken.
        ledger: where they are kept.
        root: the folder of data sets that are files.
        until: the time (`time.time()`) at which the state is saved and `Interrupted` raised.
        parent: the process that started this one; with it gone, no further cell is begun.
        together: how many are trained at once.
    """
    while parent is None or os.getppid() == parent:
        with ExitStack() as held:
            taken = list(islice(_taken(cells, ledger, held), together))
            if not taken:
                return
            if len(taken) == 1:
                with _reasons(taken[0], ledger):
                    finish(taken[0], ledger, root=root, until=until)
                continue
            failed = finish_together(taken, ledger, root=root, until=until)
            for cell in sorted(
                taken, key=lambda cell: isinstance(failed.get(cell.name), Interrupted)
            ):
                with _reasons(cell, ledger):
                    if cell.name in failed:
                        raise failed[cell.name]


def _taken(cells: Sequence[Cell], ledger: Ledger, held: ExitStack) -> Iterator[Cell]:
    """Claim the next cell that nobody has, while `held` is open, and the next."""
    for cell in cells:
        if ledger.state(cell) not in OPEN or not held.enter_context(ledger.claimed(cell)):
            continue
        # Another process may have done it in the meantime.
        if ledger.missing(cell) and not ledger.failure(cell):
            yield cell


@contextmanager
def _reasons(cell: Cell, ledger: Ledger) -> Iterator[None]:
    """Write down why a cell came to no result."""
    try:
        yield
    except Interrupted:
        raise
    except (Diverged, Emptied) as error:
        ledger.fail(cell, str(error), is_result=True)
    except TorchcapsError as error:
        ledger.fail(cell, str(error), is_result=False)
    except Exception as error:
        traceback.print_exc()
        ledger.fail(cell, f"{type(error).__name__}: {error}", is_result=False)
