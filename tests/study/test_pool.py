"""The pool, with real processes that are really killed."""

import json
import os
import signal
import sys
from contextlib import nullcontext
from dataclasses import replace

import pytest

from error_text import text_of
from study_line import kill_all, until
from torchcaps.errors import Interrupted, TorchcapsError
from torchcaps.study import workers
from torchcaps.study.ledger import Ledger
from torchcaps.study.pool import MOST_DEATHS, _Pool, run_study
from torchcaps.study.settings import Settings
from torchcaps.study.workers import End, serve


def no_worker(*_):
    pytest.fail("a worker was started")


class Pretended:
    """A worker that ends as it is told."""

    def __init__(self, end=None):
        self.ended = end

    def is_alive(self):
        return self.ended is None

    def end(self):
        return self.ended


@pytest.mark.parametrize("option", ["--out", "--evidence"])
def test_folders_that_take_no_file_are_found_before_training(study, tmp_path, monkeypatch, option):
    monkeypatch.setattr("torchcaps.study.workers._Process", no_worker)
    file = tmp_path / "file"
    file.touch()
    folders = {"--out": tmp_path / "runs", "--evidence": tmp_path / "e", option: file}
    assert text_of(lambda: run_study(study(), Settings(*folders.values()))) == (
        f"{option} must name a folder to write in, but in {file} that fails (File exists); name "
        f"another one."
    )


@pytest.mark.parametrize("kind", ["symlink_to", "hardlink_to"])
def test_a_worker_does_not_write_through_a_planted_link(study, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(workers, "work", lambda *_, **__: print("told", file=sys.stderr))
    victim, log = tmp_path / "thesis", tmp_path / "worker0.log"
    victim.write_text("years of work")
    getattr(log, kind)(victim)
    for _ in range(2):
        assert serve(study().cells(), Settings(tmp_path, tmp_path), 0)
    assert victim.read_text() == "years of work"
    assert log.read_text() == "told\ntold\n"


def test_records_that_cannot_be_read_are_found_before_training(study, tmp_path, monkeypatch):
    monkeypatch.setattr("torchcaps.study.workers._Process", no_worker)
    folder = tmp_path / "e" / study().name
    folder.mkdir(parents=True)
    (folder / "0123456789ab.json").write_text("{")
    said = text_of(lambda: run_study(study(), Settings(tmp_path / "runs", tmp_path / "e")))
    assert "0123456789ab.json" in said


@pytest.fixture
def made(ledger):
    """A pool on the ledger, which hires nobody unless it is told how."""

    def make(cells, hire=no_worker, **options):
        return _Pool(cells, ledger, Settings(ledger.folder, ledger.folder, **options), hire)

    return make


def test_a_worker_that_died_is_replaced_while_others_work(study, made):
    cells = study(seeds=(0, 1)).cells()
    first, second = (cell.name for cell in cells)
    hired = []
    pool = made(cells, lambda _, number: hired.append(number) or Pretended(), jobs=2)
    assert pool.tend({first: "waiting", second: "waiting"})
    assert hired == [0, 1]
    pool.workers[1].ended = End("killed", second)
    assert pool.tend({first: "running", second: "begun"})
    assert hired == [0, 1, 2]
    assert pool.deaths[second] == 1


def test_a_queue_that_takes_fewer_workers_gets_fewer(study, made):
    cells = study(seeds=(0, 1, 2)).cells()
    hired = []

    def hire(cells, number):
        if len(hired) == 2:
            raise TorchcapsError("the queue is full.")
        hired.append(number)
        return Pretended()

    states = {cell.name: "waiting" for cell in cells}
    pool = made(cells, hire, jobs=3)
    assert pool.tend(states)
    pool.hire = no_worker
    assert pool.tend(states)
    assert hired == [0, 1]
    # Where none is taken there is nothing to wait for.
    pool = made(cells, hire, jobs=3)
    assert text_of(lambda: pool.tend(states)) == "the queue is full."


def test_a_machine_that_went_away_is_no_fault_of_its_cell(study, made):
    (cell,) = study().cells()
    pool = made([cell])
    pool.workers = [Pretended(End("lost", cell.name))]
    # A disk that machines share frees the locks of a dead one after a while.
    assert pool.tend({cell.name: "running"})
    assert not pool.deaths
    pool.hire = lambda cells, number: Pretended()
    assert pool.tend({cell.name: "begun"})
    assert len(pool.workers) == 1


def test_a_cell_that_kills_its_workers_is_left_alone(study, made):
    (cell,) = study().cells()
    pool = made([cell])
    pool.deaths[cell.name] = MOST_DEATHS
    assert not pool.tend({cell.name: "begun"})
    assert text_of(lambda: pool.explain({cell.name: "begun"})) == (
        f"the process that ran {cell.name} was killed 3 times, so it was left alone; did memory "
        f"run out? Take fewer --jobs."
    )


def test_workers_that_die_before_they_take_a_cell_are_not_replaced_for_ever(study, made):
    """A full disk, or a program that starts a study whenever it is imported."""
    cells = study(seeds=(0, 1, 2)).cells()
    states = {cell.name: "waiting" for cell in cells}
    hired = []
    pool = made(cells, lambda _, number: hired.append(number) or Pretended(End("killed")))
    while pool.tend(states):
        assert len(hired) <= MOST_DEATHS
    assert hired == [0, 1, 2]
    assert text_of(lambda: pool.explain(states)) == (
        "3 processes ended one after another before they took a cell, so no more were started; "
        "what they said is above: is the disk full, did memory run out? The same command goes on."
    )


def test_a_worker_that_ends_well_makes_up_for_those_that_died_early(study, made):
    cells = study(seeds=(0, 1)).cells()
    states = {cell.name: "waiting" for cell in cells}
    ends = iter([End("killed"), End("killed"), End("done"), End("killed"), End("killed")])
    pool = made(cells, lambda *_: Pretended(next(ends)))
    for _ in range(5):
        assert pool.tend(states)
    assert pool.early == 1


def test_cells_that_nobody_took_are_told(study, made):
    """Each of two commands thought that the other one had it, and both ended without a word."""
    (cell,) = study().cells()
    pool = made([cell])
    with pytest.raises(Interrupted) as caught:
        pool.explain({cell.name: "waiting"})
    assert str(caught.value) == (
        "1 of 1 cells are left, which another process seemed to be at; the same command goes on."
    )
    # Its table would look as if it were of all seeds.
    with pytest.raises(Interrupted) as caught:
        pool.explain({cell.name: "running"})
    assert str(caught.value) == (
        "1 of 1 cells are left, which another command is at; when it has ended, the same line "
        "prints them all."
    )


def test_cells_that_were_stopped_are_told(study, ledger, made):
    (cell,) = study().cells()
    ledger.fail(cell, "there is no folder data.", is_result=False)
    pool = made([cell])
    assert text_of(lambda: pool.explain({cell.name: "stopped"})) == (
        f"1 of 1 cells were stopped by an error, the first, {cell.name}, by this: there is no "
        f"folder data. The same command tries them again."
    )


def test_a_cell_that_ended_is_asked_once(study, ledger, made, monkeypatch):
    """Twice a second the files of all cells were read, by a process that only waits."""
    first, second = study(seeds=(0, 1)).cells()
    ledger.fail(first, "the loss became nan", is_result=True)
    asked = []
    state = Ledger.state
    monkeypatch.setattr(Ledger, "state", lambda self, cell: asked.append(cell) or state(self, cell))
    pool = made([first, second])
    for _ in range(2):
        assert pool.states() == {first.name: "failed", second.name: "waiting"}
    assert asked == [first, second, second]


def test_a_study_that_is_done_starts_nothing(study, ledger, tmp_path, monkeypatch):
    (cell,) = study().cells()
    ledger.fail(cell, "the loss became nan", is_result=True)
    monkeypatch.setattr("torchcaps.study.workers._Process", no_worker)
    seen = []
    settings = Settings(ledger.folder, tmp_path / "evidence")
    assert run_study(study(), settings, watch=seen.append) == []
    assert seen == [{cell.name: "failed"}]


def test_a_system_that_makes_no_record_holds_up_no_other(study, ledger, tmp_path, monkeypatch):
    """Its run is gone; the other one is trained all the same, and then it is told."""
    first, second = (study(learning_rate=rate) for rate in (1e-3, 2e-3))
    both = replace(first, systems=(*first.systems, *second.systems))
    gone, other = both.cells()
    ledger.write(gone, gone.looks[0], {"accuracy": 50.0})

    def hire(cells, number):
        ledger.fail(other, "the loss became nan", is_result=True)
        return Pretended(End("done"))

    monkeypatch.setattr("torchcaps.study.pool._place", lambda *_: nullcontext(hire))
    settings = Settings(ledger.folder, tmp_path / "evidence")
    said = text_of(lambda: run_study(both, settings))
    assert f"holds what was measured of {gone.name}, but its run is gone" in said
    assert ledger.state(other) == "failed"


@pytest.mark.cluster
def test_killed_workers_and_killed_studies_go_on(lines, tmp_path):
    """One worker is killed, then every process; then the same line ends what they began."""
    study = lines.start("--jobs", "2")
    until(lambda: len(lines.rows()) == 2 and all(lines.rows().values()))
    claim = next((tmp_path / "runs").glob("*.claim"))
    os.kill(json.loads(claim.read_text())["process"], signal.SIGKILL)
    # Another worker takes its place.
    until(lambda: len(lines.rows()) >= 3)
    kill_all(study)
    before = lines.done()
    lines.assert_end_well(lines.start("--jobs", "2"))
    after = lines.done()
    # What was done was left as it is.
    assert {name: after[name] for name in before} == before
    # Nothing is left to do, and nothing is done.
    assert lines.start("--jobs", "2").wait(timeout=600) == 0
    assert lines.done() == after
