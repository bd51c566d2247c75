"""One worker in this process: what it takes, what it leaves, what it writes down."""

import dataclasses
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from error_text import text_of
from made_records import made
from torchcaps.errors import Diverged, Emptied, Interrupted, TorchcapsError
from torchcaps.study import evidence as module_of_records
from torchcaps.study import ledger as module_of_ledger
from torchcaps.study import read_record, read_records
from torchcaps.study import work as module
from torchcaps.study.evidence import write_records
from torchcaps.study.ledger import Ledger
from torchcaps.study.system import Study
from torchcaps.study.work import Terms, work
from torchcaps.train import make_recipe
from torchcaps_claims import find_claim, result_of


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
    monkeypatch.setattr(module, "look_at", lambda run, look, **_: {"accuracy": 50.0})
    monkeypatch.setattr(module, "images_of_others", lambda run, look, **_: None)
    return seen


def test_every_cell_is_trained_once(study, ledger, fits, tmp_path):
    cells = study(seeds=(0, 1)).cells()
    work(cells, ledger)
    assert fits == [0, 1]
    work(cells, ledger)
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
    work(more.cells(), ledger)
    (newer,) = write_records(more, ledger, tmp_path / "evidence")
    assert fits == [0, 1, 2]
    assert newer != path
    (record,) = read_records(tmp_path / "evidence", drafts=True).values()
    assert (len(record.seeds), record.supersedes) == (3, path.stem)


@pytest.mark.parametrize("is_shared", [True, False])
def test_two_that_end_at_once_write_one_record(study, ledger, tmp_path, monkeypatch, is_shared):
    """Of one folder of runs, or of two with one folder of records."""
    work(study().cells(), ledger)
    other = ledger
    if not is_shared:
        other = Ledger(shutil.copytree(ledger.folder, tmp_path / "other"))
    real = module_of_records.read_records

    def slow(*args, **options):
        found = real(*args, **options)
        time.sleep(0.3)
        return found

    monkeypatch.setattr(module_of_records, "read_records", slow)
    with ThreadPoolExecutor(2) as pool:
        ends = [
            pool.submit(write_records, study(), each, tmp_path / "evidence")
            for each in (ledger, other)
        ]
        first, second = (end.result() for end in ends)
    assert first == second
    assert len(read_records(tmp_path / "evidence", drafts=True)) == 1


@pytest.fixture
def records(study, ledger, tmp_path, monkeypatch):
    """Writes the record of so many seeds that nobody trained, as long as training took."""

    def write(*, seeds, seconds=1.0, dirty=False, seen=None, more=()):
        def record_of_runs(folders, *, study, claims, measured, measured_by, **_):
            if seen is not None:
                seen[:] = measured_by
            rows = [{**each, **dict.fromkeys(more, 0.0)} for each in measured.values()]
            record = made(system.recipe, rows, claim=claims[0])
            of = [each.model_copy(update={"wall_seconds": seconds}) for each in record.seeds]
            return record.model_copy(update={"study": study, "seeds": tuple(of), "dirty": dirty})

        monkeypatch.setattr(module_of_records, "record_of_runs", record_of_runs)
        found = study(seeds=range(seeds))
        (system,) = found.systems
        for cell in found.cells():
            run = ledger.run(cell)
            run.folder.mkdir(parents=True, exist_ok=True)
            run.recipe_file.write_text(cell.recipe.model_dump_json())
            run.result_file.touch()
            run.model_file.touch()
            if ledger.failure(cell) is None:
                ledger.write(cell, *cell.looks, {"accuracy": 50.0 + cell.recipe.seed})
        (path,) = write_records(found, ledger, tmp_path / "evidence")
        return path.stem

    return write


def test_fewer_seeds_of_the_same_runs_leave_their_record(records, tmp_path):
    """It says as much, and more; a line with --seeds 2 took it away."""
    first = records(seeds=3)
    assert records(seeds=2) == first
    assert [*read_records(tmp_path / "evidence")] == [first]


def test_fewer_seeds_that_were_trained_anew_supersede_nothing(records, tmp_path):
    """A clone has records and no runs."""
    first = records(seeds=3)
    fewer = records(seeds=2, seconds=2.0)
    assert {*read_records(tmp_path / "evidence")} == {first, fewer}
    # As many seeds do; of several records they replace the one that is shown.
    again = records(seeds=3, seconds=3.0)
    assert {*read_records(tmp_path / "evidence")} == {again, fewer}
    assert records(seeds=3, seconds=3.0) == again


def test_fewer_statistics_supersede_nothing(records, tmp_path):
    first = records(seeds=1, more=["sparsity"])
    second = records(seeds=2)
    assert {*read_records(tmp_path / "evidence")} == {first, second}
    # All of both replace one of them.
    third = records(seeds=2, more=["sparsity"])
    found = read_records(tmp_path / "evidence")
    assert third in found
    assert found[third].supersedes in (first, second)
    assert len(found) == 2


def test_one_system_has_one_record_in_whichever_order_its_seeds_came(study, ledger, tmp_path):
    evidence = tmp_path / "evidence"
    work(study(seeds=(1, 0)).cells(), ledger)
    (alone,) = write_records(study(seeds=(1,)), ledger, evidence)
    (both,) = write_records(study(seeds=(1, 0)), ledger, evidence)
    assert write_records(study(seeds=(0, 1)), ledger, evidence) == [both]
    ((name, record),) = read_records(evidence, drafts=True).items()
    assert (name, record.supersedes) == (both.stem, alone.stem)
    assert [seed.seed for seed in record.seeds] == [0, 1]
    assert record.recipe["seed"] == 0


def test_of_a_record_and_a_draft_the_record_is_superseded(records, tmp_path):
    for seconds in range(2, 6):
        first = records(seeds=2)
        draft = records(seeds=2, seconds=float(seconds), dirty=True)
        newer = records(seeds=2, seconds=seconds + 0.5)
        assert [*read_records(tmp_path / "evidence")] == [newer]
        assert records(seeds=2, seconds=seconds + 0.5) == newer
        assert len({first, draft, newer}) == 3
        shutil.rmtree(tmp_path / "evidence")


def test_values_whose_run_is_gone_are_a_sentence(study, ledger, records, tmp_path):
    records(seeds=1)
    (cell,) = study().cells()
    ledger.run(cell).result_file.unlink()
    assert ledger.state(cell) == "done"
    assert text_of(lambda: write_records(study(), ledger, tmp_path / "evidence")) == (
        f"{ledger.folder / cell.name}.values.json holds what was measured of {cell.name}, but its "
        f"run is gone or has lost its result; put the run back, or remove the file as well, and "
        f"the same line trains it anew."
    )


def test_a_record_that_is_refused_keeps_no_other_system_from_its_own(study, ledger, tmp_path):
    lost, kept = study(), study(learning_rate=0.1)
    both = dataclasses.replace(lost, systems=(*lost.systems, *kept.systems))
    work(both.cells(), ledger)
    ledger.run(lost.cells()[0]).result_file.unlink()
    assert "its run is gone" in text_of(lambda: write_records(both, ledger, tmp_path / "e"))
    (record,) = read_records(tmp_path / "e", drafts=True).values()
    assert record.recipe["learning_rate"] == 0.1
    # A record that judges more claims replaces it, and stands where fewer are asked for.
    without = dataclasses.replace(kept, systems=(dataclasses.replace(*kept.systems, claims=()),))
    (few,) = write_records(without, ledger, tmp_path / "few")
    (more,) = write_records(kept, ledger, tmp_path / "few")
    assert read_record(more).supersedes == few.stem
    assert write_records(without, ledger, tmp_path / "few") == [more]


def test_seeds_that_were_measured_on_other_images_make_no_record(study, ledger):
    zero, one = study(seeds=(0, 1)).cells()
    (look,) = zero.looks
    for cell, digest in ((zero, "3"), (one, "4")):
        ledger.write(cell, look, {"accuracy": 50.0}, images=digest)
    name = look.images
    assert module_of_records._images([zero], ledger) == {name: "3"}
    assert text_of(lambda: module_of_records._images([zero, one], ledger)) == (
        f"{one.name} was measured on other images of {name} (digest 4) than the seeds before it "
        f"(3), so they do not make one record; remove "
        f"{ledger.folder / one.name}.values.json, and it is measured again."
    )


def test_a_frozen_trunk_lies_beside_the_data_sets(study, ledger, tmp_path):
    (system,) = study().systems
    options = {"trunk": "resnet18_imagenet", "types": 1}
    recipe = make_recipe(model="rem_dr", data="sign", options=options, epochs=1)
    assert module.trunk_file(system.recipe, tmp_path) is None
    assert module.trunk_file(recipe, tmp_path) == tmp_path / "resnet18_imagenet.safetensors"
    frozen = dataclasses.replace(system, recipe=recipe)
    (cell,) = Study("a/b", (frozen,)).cells()
    work([cell], ledger, Terms(tmp_path))
    assert f"there is no file {tmp_path}/resnet18_imagenet.safetensors; it must be weights of" in (
        ledger.failure(cell)
    )


def test_cells_at_once_are_each_trained_measured_and_told_apart(study, ledger, monkeypatch):
    """Of five, the second is another worker's, and the fourth diverges."""
    at_once, real = [], module.outcomes

    def outcomes(calls):
        at_once.append([call["recipe"].seed for call in calls])
        ended = real(calls)
        return [
            Diverged("nan") if call["recipe"].seed == 3 else run
            for call, run in zip(calls, ended, strict=True)
        ]

    monkeypatch.setattr(module, "outcomes", outcomes)
    cells = study(seeds=(0, 1, 2, 3, 4)).cells()
    with ledger.claimed(cells[1]):
        work(cells, ledger, together=2)
    assert at_once == [[0, 2], [3, 4]]
    assert [ledger.state(cell) for cell in cells] == [
        *("done", "waiting", "done", "failed", "done")
    ]
    assert ledger.failure(cells[3]) == "nan"
    values = ledger.values(cells[2])
    alone = Ledger(ledger.folder / "alone")
    work(cells[2:3], alone)
    assert alone.values(cells[2]) == values


def test_cells_at_once_stop_together(study, ledger):
    cells = study(seeds=(0, 1)).cells()
    with pytest.raises(Interrupted, match="the time budget is used up"):
        work(cells, ledger, Terms(until=time.time() + 1e-3), together=2)
    assert not any(ledger.failure(cell) for cell in cells)
    work(cells, ledger, together=2)
    assert [ledger.state(cell) for cell in cells] == ["done", "done"]


def test_cells_of_others_are_left_alone(study, ledger, pretended):
    cells = study(seeds=(0, 1)).cells()
    with ledger.claimed(cells[0]):
        work(cells, ledger)
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
        work(cells, ledger)
    assert pretended == [1]


def test_with_its_parent_gone_no_cell_is_begun(study, ledger, pretended):
    work(study().cells(), ledger, parent=os.getppid() + 1)
    assert pretended == []


def test_past_its_budget_nothing_is_begun(study, ledger):
    cells = study().cells()
    with pytest.raises(Interrupted, match="the time budget is used up; the same command goes on"):
        work(cells, ledger, Terms(until=time.time() - 1))
    assert ledger.state(cells[0]) == "waiting"


def test_past_its_budget_no_look_is_begun(study, ledger, monkeypatch):
    """They were all taken, however long they took."""
    (cell,) = study().cells()
    seen = []
    monkeypatch.setattr(module, "look_at", lambda *_, **__: seen.append(1))
    monkeypatch.setattr(module, "images_of_others", lambda run, look, **_: None)
    real = module.fit

    def fit(*words, **options):
        run = real(*words, **options)
        monkeypatch.setattr(module.time, "time", lambda: 1e12)
        return run

    monkeypatch.setattr(module, "fit", fit)
    with pytest.raises(Interrupted, match="the time budget is used up; the same command goes on"):
        work([cell], ledger, Terms(until=time.time() + 1000))
    assert seen == []
    assert ledger.run(cell).is_done


@pytest.mark.parametrize(
    ("error", "state", "why"),
    [
        (Diverged("the loss became nan"), "failed", "the loss became nan"),
        (Emptied("a layer would be empty"), "failed", "a layer would be empty"),
        (TorchcapsError("no such folder"), "stopped", "no such folder"),
        (MemoryError("out"), "stopped", "MemoryError: out"),
    ],
)
def test_errors_are_written_down(study, ledger, monkeypatch, error, state, why):
    def fit(*_, **__):
        raise error

    monkeypatch.setattr(module, "fit", fit)
    cells = study(seeds=(0, 1)).cells()
    work(cells, ledger)
    assert [ledger.state(cell) for cell in cells] == [state, state]
    assert ledger.failure(cells[0]) == why


def test_a_seed_that_failed_stays_in_the_record(study, ledger, tmp_path):
    both = study(seeds=(0, 1))
    first, second = both.cells()
    ledger.fail(second, "the loss became nan", is_result=True)
    work([first], ledger)
    write_records(both, ledger, tmp_path / "evidence")
    (record,) = read_records(tmp_path / "evidence", drafts=True).values()
    assert [seed.failed for seed in record.seeds] == [None, "the loss became nan"]
    assert len(record.values("accuracy")) == 1


def test_where_every_seed_fails_that_is_a_result(study, ledger, tmp_path):
    both = study(seeds=(0, 1), learning_rate=1e38)
    work(both.cells(), ledger)
    assert [ledger.state(cell) for cell in both.cells()] == ["failed", "failed"]
    (path,) = write_records(both, ledger, tmp_path / "evidence")
    (record,) = read_records(tmp_path / "evidence", drafts=True).values()
    assert record.recipe["learning_rate"] == 1e38
    assert [seed.failed for seed in record.seeds] == [
        "the loss became nan at step 1, so training diverged; take a smaller learning rate than "
        "1e+38, in a new folder."
    ] * 2
    # Training came to no test images.
    assert list(record.data) == ["sign/train"]
    assert record.values("accuracy") == []
    claim = find_claim(*record.claims)
    assert result_of(claim, {path.stem: record}).verdict is None
    assert write_records(both, ledger, tmp_path / "evidence") == [path]


def test_the_code_that_saw_a_seed_fail_counts_as_well(study, ledger, records, monkeypatch):
    _, second = study(seeds=(0, 1)).cells()
    monkeypatch.setattr(module_of_ledger, "environment", lambda: {"commit": "b2+changes"})
    ledger.fail(second, "the loss became nan", is_result=True)
    monkeypatch.setattr(module_of_ledger, "environment", lambda: {"commit": "a1"})
    seen = []
    records(seeds=2, seen=seen)
    assert seen == ["a1", "b2+changes"]


def test_a_set_that_is_not_there_is_a_sentence(study, ledger, tmp_path):
    (cell,) = study(data="mnist").cells()
    work([cell], ledger, Terms(tmp_path))
    assert ledger.state(cell) == "stopped"
    assert str(tmp_path) in ledger.failure(cell)
