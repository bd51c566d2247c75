"""One worker: it takes the next cell that nobody has, trains it, measures it, and goes on."""

import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torchcaps.errors import Diverged, Emptied, Interrupted, TorchcapsError
from torchcaps.study.ledger import Ledger
from torchcaps.study.measure import images_of_others, look_at, root_of, trunk_file
from torchcaps.study.system import Cell
from torchcaps.train import fit

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
    left = _left(until)
    recipe = cell.recipe
    before = signal.getsignal(signal.SIGTERM)
    run = fit(
        recipe,
        ledger.run(cell).folder,
        root=root_of(recipe.data, root) or root_of(recipe.test_data or recipe.data, root),
        label=cell.name,
        time_budget=left,
        trunk=trunk_file(recipe, root),
    )
    # Training answers it by saving its state; a look is begun anew instead.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)
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
) -> None:
    """Work through cells until none is left that this process can take.

    Arguments:
        cells: in the order in which they are taken.
        ledger: where they are kept.
        root: the folder of data sets that are files.
        until: the time (`time.time()`) at which the state is saved and `Interrupted` raised.
        parent: the process that started this one; with it gone, no further cell is begun.
    """
    took_one = True
    while took_one:
        took_one = False
        for cell in cells:
            if parent is not None and os.getppid() != parent:
                return
            if ledger.state(cell) not in OPEN:
                continue
            with ledger.claimed(cell) as is_ours:
                # Another process may have done it in the meantime.
                if not is_ours or not ledger.missing(cell) or ledger.failure(cell):
                    continue
                took_one = True
                with _reasons(cell, ledger):
                    finish(cell, ledger, root=root, until=until)


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
