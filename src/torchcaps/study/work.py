"""One worker: it takes the next cell that nobody has, trains it, measures it, and goes on."""

import os
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any, NamedTuple

from torchcaps.errors import Diverged, Emptied, Interrupted, TorchcapsError
from torchcaps.study.ledger import Ledger
from torchcaps.study.measure import images_of_others, look_at, root_of, trunk_file
from torchcaps.study.system import Cell
from torchcaps.train import Run, fit
from torchcaps.train.many import outcomes

# A worker takes cells in these states.
OPEN = ("waiting", "begun")


class Terms(NamedTuple):
    """What holds for every cell: the folder of data sets that are files, and the time
    (`time.time()`) at which the state is saved and `Interrupted` raised."""

    root: str | os.PathLike[str] | None = None
    until: float | None = None

    def left(self) -> float | None:
        """Say how many seconds of the time budget are left."""
        left = None if self.until is None else self.until - time.time()
        if left is not None and left <= 0:
            raise Interrupted("the time budget is used up; the same command goes on.")
        return left


def finish(cell: Cell, ledger: Ledger, terms: Terms) -> None:
    """Train a cell, or go on with it, and take every look that is missing."""
    _look(cell, ledger, fit(**_call(cell, ledger, terms)), terms)


def finish_together(cells: Sequence[Cell], ledger: Ledger, terms: Terms) -> dict[str, Exception]:
    """Train several cells at once, and look at each; with the errors of those that failed."""
    failed: dict[str, Exception] = {}
    ended = outcomes([_call(cell, ledger, terms) for cell in cells])
    for cell, outcome in zip(cells, ended, strict=True):
        try:
            if isinstance(outcome, Exception):
                raise outcome
            _look(cell, ledger, outcome, terms)
        except Exception as error:
            failed[cell.name] = error
    return failed


def _call(cell: Cell, ledger: Ledger, terms: Terms) -> dict[str, Any]:
    recipe, root = cell.recipe, terms.root
    return {
        "recipe": recipe,
        "out": ledger.run(cell).folder,
        "root": root_of(recipe.data, root) or root_of(recipe.test_data or recipe.data, root),
        "label": cell.name,
        "time_budget": terms.left(),
        "trunk": trunk_file(recipe, root),
    }


def _look(cell: Cell, ledger: Ledger, run: Run, terms: Terms) -> None:
    for look in ledger.missing(cell):
        values = look_at(run, look, root=terms.root, time_budget=terms.left())
        ledger.write(cell, look, values, images=images_of_others(run, look, root=terms.root))


def work(
    cells: Sequence[Cell],
    ledger: Ledger,
    terms: Terms = Terms(),
    *,
    parent: int | None = None,
    together: int = 1,
) -> None:
    """Take cells in their order, as many at once as are trained together, until none is left that
    this process can take, or the process that started this one, its parent, is gone."""
    while parent is None or os.getppid() == parent:
        with ExitStack() as held:
            taken = list(islice(_taken(cells, ledger, held), together))
            if not taken:
                return
            if len(taken) == 1:
                with _reasons(taken[0], ledger):
                    finish(taken[0], ledger, terms)
                continue
            failed = finish_together(taken, ledger, terms)
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
