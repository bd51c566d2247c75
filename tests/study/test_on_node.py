"""What runs on another machine, in this process."""

import os
import sys
import time

import pytest

from torchcaps.errors import Diverged, Interrupted, TorchcapsError
from torchcaps.study import work as module
from torchcaps.study.disk import pack, signed, unpack
from torchcaps.study.ledger import Ledger
from torchcaps.study.on_node import OnNode
from torchcaps.study.settings import Settings
from torchcaps.train import own_code


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A machine that has nothing of the folder."""
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    def make(*, n_gpus=0, **options):
        settings = Settings(tmp_path / "elsewhere", tmp_path / "evidence", on="ray", **options)
        return OnNode(settings, 3, ["torchcaps", "study", "run"], n_gpus)

    return make


@pytest.mark.slow
def test_a_cell_that_was_sent_comes_back_done(study, ledger, node, monkeypatch):
    (cell,) = study().cells()
    there = node()
    files, failed = there.finish(cell, pack(ledger.folder, cell.name))
    assert failed is None
    unpack(files, ledger.folder, cell.name)
    assert ledger.state(cell) == "done"
    assert ledger.run(cell).began()["command"] == "torchcaps study run"
    assert not there.settings.folder.exists()
    # Sent once more for another look, it is not trained again.
    (ledger.folder / f"{cell.name}.values.json").unlink()
    before = ledger.run(cell).result_file.read_bytes()
    monkeypatch.setattr(module, "look_at", lambda run, look, **_: {"accuracy": 12.0})
    monkeypatch.setattr(module, "images_of_others", lambda run, look, **_: None)
    monkeypatch.setattr("lightning.Trainer", lambda **_: pytest.fail("it was trained"))
    files, failed = there.finish(cell, pack(ledger.folder, cell.name))
    unpack(files, ledger.folder, cell.name)
    assert (failed, ledger.values(cell)) == (None, {"accuracy@sign/train": 12.0})
    assert ledger.run(cell).result_file.read_bytes() == before


@pytest.mark.parametrize("error", [Diverged("the loss became nan"), Interrupted("told to stop")])
def test_what_stopped_a_cell_comes_back_with_its_files(study, node, monkeypatch, error, tmp_path):
    def fit(recipe, out, **options):
        out.mkdir()
        (out / "state.ckpt").write_text("as far as it came")
        raise error

    monkeypatch.setattr(module, "fit", fit)
    (cell,) = study().cells()
    files, failed = node().finish(cell, {})
    assert failed is error
    unpack(files, tmp_path, cell.name)
    assert (tmp_path / cell.name / "state.ckpt").read_text() == "as far as it came"


def test_past_the_budget_nothing_is_begun(study, node):
    (cell,) = study().cells()
    files, failed = node(until=time.time() - 1).finish(cell, {})
    assert (files, type(failed)) == ({}, Interrupted)


def test_where_the_folder_is_seen_cells_are_taken_there(study, ledger, node, monkeypatch):
    seen = []
    monkeypatch.setattr(module, "fit", lambda recipe, out, **options: seen.append(out))
    monkeypatch.setattr(module, "look_at", lambda run, look, **_: {"accuracy": 50.0})
    monkeypatch.setattr(module, "images_of_others", lambda run, look, **_: None)
    there = node()
    (cell,) = study().cells()
    assert there.serve([cell])
    assert seen == [there.settings.folder / cell.name]
    assert Ledger(there.settings.folder).state(cell) == "done"
    assert (there.settings.folder / "worker3.log").is_file()


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_worker_imports_what_the_study_was_given(study, node, monkeypatch, tmp_path, is_seen):
    """A worker is another process, which knew no network of one's own."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(own_code, "_IMPORTED", {})
    monkeypatch.setattr(module, "fit", lambda *_, **__: pytest.fail("it was not imported"))
    file = tmp_path / "mine_of_worker.py"
    file.write_text("import torchcaps\nraise torchcaps.TorchcapsError('it was imported')")
    (cell,) = study().cells()
    there = node(imports=(file,))
    if is_seen:
        with pytest.raises(TorchcapsError, match="it was imported"):
            there.serve([cell])
    else:
        _, failed = there.finish(cell, {})
        assert str(failed) == "it was imported"


def test_a_worker_without_a_gpu_sees_none(node):
    node(n_gpus=1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    node(n_gpus=0)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


def test_paths_do_not_depend_on_where_a_process_was_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = Settings("runs", "evidence", root="data").for_elsewhere()
    assert (settings.folder, settings.root) == (tmp_path / "runs", tmp_path / "data")
    with signed(settings.folder) as sign:
        assert (settings.folder / sign).is_file()
