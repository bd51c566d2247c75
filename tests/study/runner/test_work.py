"""One worker in this process: what it takes, what it leaves, what it writes down."""

import dataclasses
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from torchcaps.errors import Diverged, Interrupted, TorchcapsError
from torchcaps.study import read_records
from torchcaps.study.runner import Study
from torchcaps.study.runner import evidence as module_of_records
from torchcaps.study.runner import work as module
from torchcaps.study.runner.evidence import write_records
from torchcaps.study.runner.work import work
from torchcaps.train import make_recipe


@pytest.fixture
def fits(monkeypatch):
    """Counts trainings."""
    seen = []
    real = module.fit

    def fit(recipe, out, **options):
        seen.append(recipe.seed)
        return real(recipe, out, **options)

    monkeypatch.setattr(module, "fit", fit)
    return seen


@pytest.fixture
def pretended(monkeypatch):
    """Counts trainings that are none."""
    seen = []
    monkeypatch.setattr(module, "fit", lambda recipe, out, **options: seen.append(recipe.seed))
    monkeypatch.setattr(module, "look_at", lambda run, look, root: {"accuracy": 50.0})
    return seen


def test_every_cell_is_trained_once(study, ledger, fits, tmp_path):
    cells = study(seeds=(0, 1)).cells()
    work(cells, ledger, root=None)
    assert fits == [0, 1]
    work(cells, ledger, root=None)
    assert fits == [0, 1]
    assert [ledger.state(cell) for cell in cells] == ["done", "done"]
    first, second = (ledger.values(cell)["accuracy@sign/train"] for cell in cells)
    assert 0 <= first <= 100
    assert 0 <= second <= 100
    # Asked for another look, the network is there already.
    (path,) = write_records(study(seeds=(0, 1)), ledger, tmp_path / "evidence")
    assert fits == [0, 1]
    (record,) = read_records(tmp_path / "evidence", drafts=True).values()
    assert record.values("accuracy@sign/train") == [first, second]
    # Written again, nothing changes; with more seeds, the old record is superseded.
    assert write_records(study(seeds=(0, 1)), ledger, tmp_path / "evidence") == [path]
    more = study(seeds=(0, 1, 2))
    assert write_records(more, ledger, tmp_path / "evidence") == []
    work(more.cells(), ledger, root=None)
    (newer,) = write_records(more, ledger, tmp_path / "evidence")
    assert fits == [0, 1, 2]
    assert newer != path
    (record,) = read_records(tmp_path / "evidence", drafts=True).values()
    assert (len(record.seeds), record.supersedes) == (3, path.stem)


def test_two_that_end_at_once_write_one_record(study, ledger, tmp_path, monkeypatch):
    work(study().cells(), ledger, root=None)
    real = module_of_records.read_records

    def slow(*args, **options):
        found = real(*args, **options)
        time.sleep(0.3)
        return found

    monkeypatch.setattr(module_of_records, "read_records", slow)
    with ThreadPoolExecutor(2) as pool:
        ends = [
            pool.submit(write_records, study(), ledger, tmp_path / "evidence") for _ in range(2)
        ]
        first, second = (end.result() for end in ends)
    assert first == second
    assert len(read_records(tmp_path / "evidence", drafts=True)) == 1


def test_a_frozen_trunk_lies_beside_the_data_sets(study, ledger, tmp_path):
    (system,) = study().systems
    options = {"trunk": "resnet18_imagenet", "types": 1}
    recipe = make_recipe(model="rem_dr", data="sign", options=options, epochs=1)
    assert module.trunk_file(system.recipe, tmp_path) is None
    assert module.trunk_file(recipe, tmp_path) == tmp_path / "resnet18_imagenet.safetensors"
    frozen = dataclasses.replace(system, recipe=recipe)
    (cell,) = Study("a/b", (frozen,)).cells()
    work([cell], ledger, root=tmp_path)
    assert f"there is no file {tmp_path}/resnet18_imagenet.safetensors; it must be weights of" in (
        ledger.failure(cell)
    )


def test_cells_of_others_are_left_alone(study, ledger, pretended):
    cells = study(seeds=(0, 1)).cells()
    with ledger.claimed(cells[0]):
        work(cells, ledger, root=None)
    assert pretended == [1]


def test_a_cell_that_another_process_takes_first_is_left_alone(
    study, ledger, pretended, monkeypatch
):
    """Both saw it waiting; one has the lock."""
    cells = study(seeds=(0, 1)).cells()
    with ledger.claimed(cells[0]):
        monkeypatch.setattr(
            type(ledger), "state", lambda self, cell: "done" if pretended else "waiting"
        )
        work(cells, ledger, root=None)
    assert pretended == [1]


def test_with_its_parent_gone_no_cell_is_begun(study, ledger, pretended):
    work(study().cells(), ledger, root=None, parent=os.getppid() + 1)
    assert pretended == []


def test_past_its_budget_nothing_is_begun(study, ledger):
    cells = study().cells()
    with pytest.raises(Interrupted, match="the time budget is used up; the same command goes on"):
        work(cells, ledger, root=None, until=time.time() - 1)
    assert ledger.state(cells[0]) == "waiting"


@pytest.mark.parametrize(
    ("error", "state", "why"),
    [
        (Diverged("the loss became nan"), "failed", "the loss became nan"),
        (TorchcapsError("no such folder"), "stopped", "no such folder"),
        (MemoryError("out"), "stopped", "MemoryError: out"),
    ],
)
def test_errors_are_written_down(study, ledger, monkeypatch, error, state, why):
    def fit(*_, **__):
        raise error

    monkeypatch.setattr(module, "fit", fit)
    cells = study(seeds=(0, 1)).cells()
    work(cells, ledger, root=None)
    assert [ledger.state(cell) for cell in cells] == [state, state]
    assert ledger.failure(cells[0]) == why


def test_a_seed_that_failed_stays_in_the_record(study, ledger, tmp_path):
    both = study(seeds=(0, 1))
    first, second = both.cells()
    ledger.fail(second, "the loss became nan", is_result=True)
    work([first], ledger, root=None)
    write_records(both, ledger, tmp_path / "evidence")
    (record,) = read_records(tmp_path / "evidence", drafts=True).values()
    assert [seed.failed for seed in record.seeds] == [None, "the loss became nan"]
    assert len(record.values("accuracy")) == 1


def test_a_set_that_is_not_there_is_a_sentence(study, ledger, tmp_path):
    (cell,) = study(data="mnist").cells()
    work([cell], ledger, root=tmp_path)
    assert ledger.state(cell) == "stopped"
    assert str(tmp_path) in ledger.failure(cell)
