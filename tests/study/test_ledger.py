"""A ledger: states of cells, claims, and what was measured, read from files alone."""

import json
import multiprocessing
import os
import platform
import signal
import time

import pytest

from error_text import text_of
from torchcaps.study import ledger as module
from torchcaps.study.ledger import Ledger
from torchcaps.study.look import Look
from torchcaps.study.system import Cell
from torchcaps.train import Run, make_recipe

# Of a claim or of values.
DAMAGES = (b"{", b"[]", b"null", b"{}", b"\xff", b"[" * 10_000, b"9" * 5000)
# Of values alone.
NO_VALUES = (
    b'{"commit": null, "looks": []}',
    b'{"commit": null, "looks": {"accuracy@sign/test": 1}}',
    b'{"commit": null, "looks": {"accuracy@sign/test": {"accuracy": "1"}}}',
    b'{"commit": null, "looks": {"accuracy@sign/test": {"accuracy": 1' + b"0" * 400 + b"}}}",
    b'{"commit": null, "looks": {"accuracy@sign/test": {"accuracy": NaN}}}',
    b'{"commit": 1, "looks": {}}',
    b'{"looks": {}}',
    b'{"commit": null, "looks": {}, "failed": 1}',
    b'{"commit": null, "looks": {}, "by": []}',
    b'{"commit": null, "looks": {}, "images": {"accuracy@sign/test": 1}}',
    b'{"commit": null, "looks": {}, "by": {"accuracy@sign/test": 1}}',
)
OWN, OTHER = Look("accuracy", "sign"), Look("accuracy", "sign", "train")


def cell(*, seed=0, looks=(OWN,), epochs=1):
    return Cell(make_recipe(model="peer_sign_em", data="sign", epochs=epochs, seed=seed), looks)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "runs")


def test_a_cell_is_named_by_all_that_trains_it():
    assert cell().name == cell(looks=(OTHER,)).name
    assert len({cell().name, cell(seed=1).name, cell(epochs=2).name}) == 3


def test_states_of_a_cell(ledger):
    each = cell(looks=(OWN, OTHER))
    assert ledger.state(each) == "waiting"
    ledger.run(each).folder.mkdir(parents=True)
    ledger.run(each).recipe_file.touch()
    assert ledger.state(each) == "begun"
    ledger.write(each, OWN, {"accuracy": 50.0})
    assert (ledger.state(each), ledger.missing(each)) == ("begun", [OTHER])
    with ledger.claimed(each) as is_ours:
        assert is_ours
        assert ledger.state(each) == "running"
    ledger.write(each, OTHER, {"accuracy": 49.0})
    assert ledger.state(each) == "done"
    assert ledger.values(each) == {"accuracy": 50.0, "accuracy@sign/train": 49.0}
    # The same network, looked at in one way alone, is done as well.
    assert ledger.state(cell()) == "done"


def test_every_look_keeps_the_commit_that_took_it(ledger, monkeypatch):
    """Changed code that took the first look makes a draft, whoever took the last."""

    def at(commit):
        monkeypatch.setattr(module, "environment", lambda: {"commit": commit})

    each = cell(looks=(OWN, OTHER))
    at("a1+changes")
    ledger.write(each, OWN, {"accuracy": 50.0})
    at("b2")
    ledger.write(each, OTHER, {"accuracy": 49.0})
    assert ledger.measured_by(each) == ("a1+changes", "b2")
    # Which other look was taken is nothing to whom it is not asked for.
    assert ledger.measured_by(cell(looks=(OTHER,))) == ("b2",)
    at("c3")
    ledger.fail(each, "no space left", is_result=False)
    assert ledger.measured_by(each) == ("a1+changes", "b2")
    # Changed code that trained a decoder for a look does so, too.
    drawing = cell(looks=(Look("redrawn", "sign"),))
    ledger.write(drawing, *drawing.looks, {"drawn_components": 0.5})
    decoder = Run(ledger.folder / f"{drawing.name}.decoder")
    decoder.folder.mkdir(parents=True)
    decoder.environment_file.write_text('{"commit": "d4", "went_on_with": ["e5+changes"]}')
    assert ledger.measured_by(drawing) == ("c3", "d4", "e5+changes")
    ledger.fail(each, "the loss became nan", is_result=True)
    assert ledger.measured_by(each) == ("c3",)


def test_what_is_no_number_is_not_kept(ledger):
    each = cell()
    assert text_of(lambda: ledger.write(each, OWN, {"accuracy": float("nan")})) == (
        f"accuracy@sign/test gave no number of {each.name}: accuracy is nan."
    )
    assert ledger.missing(each) == [OWN]


def test_in_a_folder_that_one_may_only_read_a_claim_is_believed(ledger, monkeypatch):
    each = cell()
    with ledger.claimed(each):
        claim = (ledger.folder / f"{each.name}.claim").read_bytes()
    (ledger.folder / f"{each.name}.claim").write_bytes(claim)
    assert ledger.state(each) == "waiting"

    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    assert ledger.state(each) == "running"


def test_failures_stay_and_accidents_are_forgiven(ledger):
    ledger.fail(cell(), "the loss became nan", is_result=True)
    ledger.fail(cell(seed=1), "no space left", is_result=False)
    assert [ledger.state(cell(seed=seed)) for seed in (0, 1)] == ["failed", "stopped"]
    assert ledger.failure(cell(seed=1)) == "no space left"
    for seed in (0, 1):
        ledger.forgive(cell(seed=seed))
    assert [ledger.state(cell(seed=seed)) for seed in (0, 1)] == ["failed", "waiting"]


def hold(ledger, each, held):
    with ledger.claimed(each):
        held.set()
        time.sleep(60)


def test_a_claim_ends_with_its_process(ledger):
    context = multiprocessing.get_context("fork")
    held = context.Event()
    holder = context.Process(target=hold, args=(ledger, cell(), held))
    holder.start()
    assert held.wait(30)
    assert ledger.state(cell()) == "running"
    with ledger.claimed(cell()) as is_ours:
        assert not is_ours
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    assert ledger.claimed_by(holder.pid, platform.node()) == cell().name
    assert ledger.state(cell()) == "waiting"
    with ledger.claimed(cell()) as is_ours:
        assert is_ours
    assert ledger.claimed_by(holder.pid, platform.node()) is None


@pytest.mark.parametrize("content", DAMAGES)
def test_a_damaged_claim_names_no_cell(ledger, content):
    ledger.folder.mkdir()
    (ledger.folder / "a.claim").write_bytes(content)
    assert ledger.claimed_by(1, "here") is None
    whole = json.dumps({"process": 1, "machine": "here", "since": 0.0})
    (ledger.folder / "b.claim").write_text(whole)
    assert ledger.claimed_by(1, "here") == "b"


@pytest.mark.parametrize("content", [*DAMAGES, *NO_VALUES])
def test_an_edited_file_is_a_sentence(ledger, content):
    ledger.write(cell(), OWN, {"accuracy": 50.0})
    path = ledger.folder / f"{cell().name}.values.json"
    path.write_bytes(content)
    said = text_of(lambda: ledger.state(cell()))
    assert said.startswith(f"{path} cannot be read (")
    assert said.endswith("was it edited? Remove it, and the cell is measured again.")


def test_a_name_in_an_edited_file_breaks_no_line(ledger):
    """Found by make fuzz with seed 1068993815."""
    path = ledger.folder / f"{cell().name}.values.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"commit": None, "looks": {"\n": None}}))
    said = text_of(lambda: ledger.state(cell()))
    assert said.startswith(f"{path} cannot be read (looks.\\n: input should be a valid dictionary)")
