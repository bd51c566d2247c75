"""How far a study is: counts, hours, and what is shown where nobody watches."""

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from made_records import made
from torchcaps.study import watch
from torchcaps.study.cost import hours_of
from torchcaps.study.look import Look
from torchcaps.study.system import Study
from torchcaps.study.watch import Progress, hours, progress_of, watched


@pytest.fixture
def progress(study, ledger):
    """Four seeds: done, failed, running, waiting."""
    found = study(seeds=(0, 1, 2, 3))
    words = ("done", "failed", "running", "waiting")
    states = {cell.name: word for cell, word in zip(found.cells(), words, strict=True)}
    run = ledger.run(found.cells()[0])
    run.folder.mkdir(parents=True)
    run.write_metrics([{"epoch": 1, "seconds": 1800.0}, {"epoch": 2, "seconds": 1800.0}])
    return Progress(found, ledger, states)


def test_cells_are_counted_and_hours_are_those_of_the_seeds_done(progress):
    (row,) = progress.rows()
    counts = {name: row[name] for name in ("cells", "done", "failed", "running", "left")}
    assert counts == {"cells": 4, "done": 1, "failed": 1, "running": 1, "left": 2}
    assert row["hours_left"] == pytest.approx(2.0)
    assert progress.text() == (
        "1 of 4 cells done, 1 failed, 1 running, 2 left: about 2.0 h on one worker"
    )
    assert progress.numbers()["left"] == 2
    assert progress.table().row_count == 1


def test_the_name_of_a_system_is_whole_however_narrow_the_window(progress):
    """`--only` needs it, and in a pipe there are 80 columns."""
    (system,) = progress.study.systems
    label = "widths=" + ",".join(["16"] * 40)
    progress.study = replace(progress.study, systems=(replace(system, label=label),))
    console = Console(width=80, file=io.StringIO(), highlight=False)
    console.print(progress.table())
    text = console.file.getvalue()
    assert "…" not in text
    assert label in "".join(line.split()[0] for line in text.splitlines())


def test_cells_that_an_error_stopped_are_left(progress):
    """They were counted as failed, as if their training had diverged, and cost no hours."""
    _, second, *_ = progress.states
    progress.states[second] = "stopped"
    numbers = progress.numbers()
    assert [numbers[name] for name in ("failed", "stopped", "left")] == [0, 1, 3]
    assert numbers["hours_left"] == pytest.approx(3.0)
    assert progress.text() == (
        "1 of 4 cells done, 1 stopped by an error, 1 running, 3 left: about 3.0 h on one worker"
    )


def test_before_a_seed_is_done_hours_are_reckoned(study, ledger):
    found = progress_of(study(seeds=(0, 1)), ledger)
    (row,) = found.rows(by_cost=True)
    assert row["hours_left"] == pytest.approx(2 * hours_of(found.study.systems[0].recipe))


def test_a_cell_that_two_systems_share_is_counted_once(study, ledger):
    """Both are shown; the sum is of what is trained."""
    (system,) = study(seeds=(0, 1)).systems
    look = Look("accuracy", "sign")
    other = replace(system, label="other", looks=(look,), seeds=(0, 1, 2), reduced="smaller")
    found = Study("a/b", (system, other))
    assert [len(cell.looks) for cell in found.cells()] == [2, 2, 1]
    records = [made(system.recipe, [{"accuracy": 99.0}] * 3)]
    # One of its looks was taken, for another study.
    ledger.write(other.cells()[0], look, {"accuracy": 50.0})
    progress = progress_of(found, ledger, records=records)
    assert set(progress.states.values()) == {"waiting"}
    assert [row["cells"] for row in progress.rows()] == [2, 3]
    numbers = progress.numbers()
    assert (numbers["cells"], numbers["left"], numbers["in_records"]) == (3, 3, 3)
    assert numbers["hours_left"] == pytest.approx(3 * hours_of(system.recipe))


def test_seeds_in_records_are_counted_where_no_run_is(study, ledger):
    """Those of the same network, of whichever claim; they are left to run all the same."""
    found = study(seeds=(0, 1, 2, 3))
    recipe = found.systems[0].recipe
    records = [
        made(recipe, [{"accuracy": 99.0}] * 3),
        made(recipe.model_copy(update={"seed": 1}), [{"accuracy": 99.0}] * 2),
        made(recipe.model_copy(update={"epochs": 2}), [{"accuracy": 99.0}] * 9),
    ]
    progress = progress_of(found, ledger, records=records)
    (row,) = progress.rows()
    assert (row["in_records"], row["left"]) == (3, 4)
    assert progress.text().endswith(" on one worker; 3 are in records")
    assert [column.header for column in progress.table().columns][-2:] == [
        "in records",
        "hours left",
    ]
    assert not ledger.folder.exists()


def test_hours_that_nobody_knows_are_none_and_no_nan(study, ledger):
    """Of smallNORB as a whole no plan says how many images there are."""
    (known,) = study().systems
    recipe = known.recipe.model_copy(update={"data": "smallnorb"})
    found = Study("a/b", (replace(known, recipe=recipe), known))
    progress = progress_of(found, ledger)
    numbers = progress.numbers(by_cost=True)
    assert [row["system"] for row in numbers["systems"]] == ["sign", "sign"]
    assert numbers["systems"][0]["hours_left"] == pytest.approx(hours_of(known.recipe))
    assert (numbers["systems"][1]["hours_left"], numbers["hours_left"]) == (None, None)
    assert json.dumps(numbers, allow_nan=False)
    assert progress.text() == (
        "0 of 2 cells done, 0 running, 2 left: nobody knows for how long, before a seed is done"
    )
    assert next(iter(progress.table().columns[-1].cells)) == "?"
    # Nothing is left of it.
    progress.states[found.cells()[0].name] = "failed"
    assert progress.numbers()["hours_left"] == pytest.approx(hours_of(known.recipe))


@pytest.mark.parametrize(("count", "text"), [(0.5, "30 min"), (2.25, "2.2 h"), (0, "0 min")])
def test_hours_in_words(count, text):
    assert hours(count) == text


def test_a_log_file_gets_a_line_when_something_changed(study, ledger, capsys):
    found = study(seeds=(0,))
    (cell,) = found.cells()
    with watched(found, ledger) as watch:
        for _ in range(3):
            watch({cell.name: "running"})
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("0 of 1 cells done, 1 running, 1 left: about ")


def test_in_a_terminal_there_is_a_row_a_system_that_is_drawn_anew(progress, monkeypatch):
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, color_system=None, width=100)
    monkeypatch.setattr(watch, "Console", lambda **_: terminal)

    def shown(states):
        begin = screen.tell()
        show_table(states)
        # Where the cursor goes is no text, and the title is as narrow as the table.
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()[begin:]).split()

    head = "system done failed running left hours left"
    with watched(progress.study, progress.ledger) as show_table:
        title = "1 of 4 cells done, 1 failed, 1 running, 2 left: about 2.0 h on one worker"
        assert shown(progress.states) == f"{title} {head} sign 1 1 1 2 2.0 h".split()
        # The third seed diverges too, and the last one begins.
        states = dict(zip(progress.states, ("done", "failed", "failed", "running"), strict=True))
        title = "1 of 4 cells done, 2 failed, 1 running, 1 left: about 1.0 h on one worker"
        assert shown(states) == f"{title} {head} sign 1 2 1 1 1.0 h".split()
