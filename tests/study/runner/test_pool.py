"""The pool, with real processes that are really killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from error_text import text_of
from torchcaps.study import read_records
from torchcaps.study.runner import Settings, run_study
from torchcaps.study.runner.pool import MOST_DEATHS, _Pool

LINE = "import sys; from torchcaps.cli import main; main()"


def test_bad_settings_are_a_sentence(study, tmp_path):
    def run(**options):
        return lambda: run_study(study(), Settings(tmp_path / "runs", tmp_path / "e", **options))

    assert text_of(run(jobs=0)) == "--jobs must be 1 or more processes, but is 0."
    assert text_of(run(device="gpu")).startswith("--device must be auto, cpu or cuda, but is 'gpu'")
    assert not (tmp_path / "runs").exists()


def test_a_cell_that_kills_its_workers_is_left_alone(study, ledger):
    (cell,) = study().cells()
    pool = _Pool([cell], ledger, Settings(ledger.folder, ledger.folder))
    pool.deaths[cell.name] = MOST_DEATHS
    assert not pool.tend({cell.name: "begun"})
    assert text_of(lambda: pool.explain({cell.name: "begun"})) == (
        f"the process that ran {cell.name} was killed 3 times, so it was left alone; did memory "
        f"run out? Take fewer --jobs."
    )


def test_cells_that_were_stopped_are_told(study, ledger):
    (cell,) = study().cells()
    ledger.fail(cell, "there is no folder data.", is_result=False)
    pool = _Pool([cell], ledger, Settings(ledger.folder, ledger.folder))
    assert text_of(lambda: pool.explain({cell.name: "stopped"})) == (
        f"1 of 1 cells were stopped by an error, the first, {cell.name}, by this: there is no "
        f"folder data. The same command tries them again."
    )


def test_a_study_that_is_done_starts_nothing(study, ledger, tmp_path, monkeypatch):
    (cell,) = study().cells()
    ledger.fail(cell, "the loss became nan", is_result=True)
    monkeypatch.setattr(_Pool, "_start", lambda self: pytest.fail("a worker was started"))
    seen = []
    settings = Settings(ledger.folder, tmp_path / "evidence")
    assert run_study(study(), settings, watch=seen.append) == []
    assert seen == [{cell.name: "failed"}]


@pytest.fixture
def line(tmp_path):
    """Starts `torchcaps study run` on four sign networks of 8 epochs, two at once."""
    (tmp_path / "my.toml").write_text(
        'model = "peer_sign_em"\ndata = "sign"\nepochs = 8\nbatch_size = 500\n'
        "validation_share = 0.0\n[vary]\nseed = [0, 1, 2, 3]\n"
    )

    started = []

    def start():
        words = ["study", "run", "my.toml", "--jobs", "2", "--json"]
        study = subprocess.Popen(
            [sys.executable, "-c", LINE, *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        started.append(study)
        return study

    yield start
    for study in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(study.pid, signal.SIGKILL)
        study.communicate()


def until(true, *, seconds=600):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def rows(folder):
    return {
        path.parent.name: [json.loads(row)["epoch"] for row in path.read_text().splitlines()]
        for path in folder.glob("runs/*/metrics.jsonl")
    }


@pytest.mark.cluster
def test_killed_workers_and_killed_studies_go_on(line, tmp_path):
    """One worker is killed, then every process; then the same line ends what they began."""
    study = line()
    until(lambda: len(rows(tmp_path)) == 2 and all(rows(tmp_path).values()))
    claim = next((tmp_path / "runs").glob("*.claim"))
    os.kill(json.loads(claim.read_text())["process"], signal.SIGKILL)
    # Another worker takes its place.
    until(lambda: len(rows(tmp_path)) >= 3)
    os.killpg(study.pid, signal.SIGKILL)
    study.wait()
    before = {name: path.stat().st_mtime_ns for name, path in done(tmp_path).items()}
    study = line()
    out, _ = study.communicate(timeout=900)
    assert study.returncode == 0
    assert rows(tmp_path) == {name: list(range(1, 9)) for name in rows(tmp_path)}
    assert len(done(tmp_path)) == 4
    # What was done was left as it is.
    after = {name: path.stat().st_mtime_ns for name, path in done(tmp_path).items()}
    assert {name: after[name] for name in before} == before
    (record,) = read_records(tmp_path / "evidence", drafts=True).values()
    assert [seed.seed for seed in record.seeds] == [0, 1, 2, 3]
    assert json.loads(out)["variants"][0]["seeds"] == [0, 1, 2, 3]
    # Nothing is left to do, and nothing is done.
    assert line().wait(timeout=600) == 0
    assert {n: path.stat().st_mtime_ns for n, path in done(tmp_path).items()} == after


def done(folder):
    return {path.parent.name: path for path in folder.glob("runs/*/result.json")}
