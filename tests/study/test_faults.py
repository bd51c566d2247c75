"""Every open, write, fsync and rename of a study and of its record fails in turn."""

import json
import os
import shutil

import pytest

from conftest import FUZZ_SEED
from faulty_disk import FaultyDisk, after_a_power_cut, drawn, faults_of, lay, mounted, sentence_of
from study_line import what_it_says
from torchcaps.errors import TorchcapsError
from torchcaps.study.evidence import write_records
from torchcaps.study.ledger import Ledger
from torchcaps.study.record import read_record
from torchcaps.study.work import work
from torchcaps.train.folder import environment


@pytest.fixture(autouse=True)
def _no_git(monkeypatch):
    monkeypatch.setattr(environment, "_commit_of", lambda source: "0a1b2c3d4e5f")


@pytest.fixture
def command(study):
    """What `study run` does in a folder, in this process: two cells, and their record."""
    found = study(seeds=(0, 1))

    def run(folder):
        ledger, cells = Ledger(folder / "runs"), found.cells()
        for cell in cells:
            ledger.forgive(cell)
        work(cells, ledger)
        write_records(found, ledger, folder / "evidence")
        for cell in cells:
            if why := ledger.failure(cell):
                # As a pool explains it.
                raise TorchcapsError(f"{cell.name} was stopped: {why}")

    return run


@pytest.fixture
def whole(command, tmp_path):
    """What a study says that nothing disturbed, and its calls."""
    folder = tmp_path / "whole"
    with mounted(FaultyDisk(folder)) as disk:
        command(folder)
    return what_it_says(folder), disk


def all_survive(faults, whole, command, tmp_path):
    told = 0
    wrong = []
    for fault in faults:
        folder = tmp_path / "-".join(map(str, fault))
        try:
            with mounted(FaultyDisk(folder, fault)):
                sentence = sentence_of(lambda folder=folder: command(folder))
            told += sentence is not None
            assert sentence is None or str(folder) in sentence, f"no file is named: {sentence}"
            with mounted(FaultyDisk(folder)):
                command(folder)
            assert what_it_says(folder) == whole[0]
        except Exception as error:
            # All that are wrong are told, not the first alone.
            wrong.append((fault, whole[1].calls[fault.at][1], repr(error)[:300]))
        shutil.rmtree(folder, ignore_errors=True)
    assert wrong == [], "\n".join(map(str, wrong))
    return told


def test_a_call_that_fails_costs_no_number(whole, command, tmp_path):
    faults = drawn(faults_of(whole[1].calls), 4, int(os.environ[FUZZ_SEED]))
    all_survive(faults, whole, command, tmp_path)


@pytest.mark.slow
def test_every_call_that_fails_costs_no_number(whole, command, tmp_path, capsys):
    faults = faults_of(whole[1].calls)
    told = all_survive(faults, whole, command, tmp_path)
    with capsys.disabled():
        print(json.dumps({"calls": len(whole[1].calls), "faults": len(faults), "told": told}))


def test_a_record_is_whole_after_a_power_cut(whole, tmp_path):
    """Its name may be lost, and never its bytes alone."""
    folder, seen = tmp_path / "after", 0
    folder.mkdir()
    for moves in after_a_power_cut(whole[1].journal, is_honest=True):
        for each in moves:
            if "evidence" in each.target.parts and each.content is not None:
                lay([each], folder)
                assert read_record(folder / each.target.name).seeds
                seen += 1
    assert seen
