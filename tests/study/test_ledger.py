"""A ledger: states of cells, claims, and what was measured, read from files alone."""

import json
import multiprocessing
import os
import platform
import re
import signal
import time

import pytest

from error_text import text_of
from torchcaps._digests import digest_of
from torchcaps.study import ledger as module
from torchcaps.study import read_records
from torchcaps.study.look import Look
from torchcaps.study.system import Cell
from torchcaps.tasks.values_file import Values, read_values, write_values
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
# Found in what earlier versions wrote, whose files have no digest.
STRANGE = [
    (
        '"accuracy@sign/train": {"accuracy": 110.0}',
        "'accuracy' of accuracy@sign/train must be from 0 to 100, but is 110",
    ),
    (
        '"layers@sign/test": {"cdr.2": -0.5}',
        "'cdr.2' of layers@sign/test must be from 0 to 1, but is -0.5",
    ),
    (
        '"layers@sign/test": {"cns.1": -1.0}',
        "'cns.1' of layers@sign/test must be from 0, but is -1",
    ),
    (
        '"separation+K3@sign/test": {"silhouette": 1.5}',
        "'silhouette' of separation+K3@sign/test must be from -1 to 1, but is 1.5",
    ),
    (
        '"accuracy@sign/tesu": {"accuracy": 1.0}',
        "'accuracy@sign/tesu' is not the name of a look, as accuracy@mnist/test",
    ),
    ('}, "by": {"accuracy@sign/test": "0a"', "'accuracy@sign/test' has no numbers"),
    ('}, "images": {"accuracy@sign/test": "x"', "'accuracy@sign/test' has no numbers"),
    ('}, "failee": {', "failee: extra inputs are not permitted"),
    # Found by make fuzz with seed 1068993815: a name broke the line.
    (r'"\n": null', r"cannot be read (looks.\n: input should be a valid dictionary)"),
    (
        '"accuracy@sign/test": {}}, "by": {"accuracy@sign/test": "ae01d97g"',
        "'ae01d97g' is no commit, as 0a1b2c3d4e5f is",
    ),
]
OWN, OTHER = Look("accuracy", "sign"), Look("accuracy", "sign", "train")


def cell(*, seed=0, looks=(OWN,), epochs=1):
    return Cell(make_recipe(model="peer_sign_em", data="sign", epochs=epochs, seed=seed), looks)


def test_a_cell_is_named_by_all_that_trains_it():
    assert cell().name == cell(looks=(OTHER,)).name
    assert len({cell().name, cell(seed=1).name, cell(epochs=2).name}) == 3


def test_a_folder_says_its_routing_and_older_ones_are_found(ledger):
    recipe = make_recipe(model="capsnet", data="sign", options={"routing": "uniform"})
    one, digest = Cell(recipe, (OWN,)), recipe.digest()
    assert one.name == f"capsnet-uniform-s0-{digest}"
    assert ledger.run(one).folder == ledger.folder / one.name
    # Begun before names told it.
    older = ledger.folder / f"capsnet-s0-{digest}"
    older.mkdir(parents=True)
    assert ledger.run(one).folder == older
    ledger.write(one, OWN, {"accuracy": 50.0})
    assert ledger.folder.joinpath(f"{older.name}.values.json").is_file()
    by_itself = make_recipe(model="capsnet", data="sign")
    assert Cell(by_itself, (OWN,)).name.startswith("capsnet-dynamic-s0-")
    strange = make_recipe(model="capsnet", data="sign", options={"routing": "my/Anneal…"})
    assert Cell(strange, (OWN,)).name.startswith("capsnet-my-Anneal--s0-")


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


def test_a_changed_character_is_found(ledger):
    """A flipped digit became evidence: the file has no other witness."""
    ledger.write(cell(), OTHER, {"accuracy": 49.5, "x": 1e-3}, images="0a1b2c3d4e5f")
    ledger.fail(cell(), "no space left", is_result=False)
    path = ledger.folder / f"{cell().name}.values.json"
    whole = path.read_text()
    assert ledger.values(cell(looks=(OTHER,)))["accuracy@sign/train"] == 49.5
    for at, character in enumerate(whole):
        if not character.isspace():
            path.write_text(whole[:at] + chr(ord(character) ^ 1) + whole[at + 1 :])
            assert f"{path} cannot be read (" in text_of(lambda: read_values(path))
    path.write_text(whole.replace("49.5", "50.5"))
    found, said = (json.loads(each)["sha256"][:12] for each in (resigned(path), whole))
    path.write_text(whole.replace("49.5", "50.5"))
    assert f"(its SHA-256 begins with {found}, but the study wrote {said})" in text_of(
        lambda: ledger.state(cell())
    )


def resigned(path):
    """The text of a file with the digest of what it holds."""
    values = json.loads(path.read_text())
    del values["sha256"]
    write_values(path, values)
    return path.read_text()


@pytest.mark.parametrize(("looks", "why"), STRANGE)
def test_what_nobody_measures_is_a_sentence(ledger, looks, why):
    path = ledger.folder / f"{cell().name}.values.json"
    path.parent.mkdir(parents=True)
    path.write_text(f'{{"commit": null, "looks": {{{looks}}}}}')
    said = text_of(lambda: ledger.state(cell()))
    assert said.startswith(f"{path} cannot be read (")
    assert why in said


def test_the_accuracy_of_a_finished_run_is_that_of_its_result(ledger):
    ledger.write(cell(), OWN, {"accuracy": 50.0})
    run = ledger.run(cell())
    run.folder.mkdir()
    run.recipe_file.write_text(cell().recipe.model_dump_json())
    run.model_file.touch()
    run.result_file.write_text('{"test_accuracy": 0.5}')
    assert ledger.values(cell()) == {"accuracy": 50.0}
    run.result_file.write_text('{"test_accuracy": 0.75}')
    assert text_of(lambda: ledger.values(cell())) == (
        f"{ledger.folder / cell().name}.values.json cannot be read (accuracy@sign/test is 50.0, "
        f"where {run.result_file} has 75.0); was it edited? Remove it, and the cell is measured "
        f"again."
    )


def test_values_belong_to_the_network_that_they_were_measured_of(ledger):
    """Of two networks that are right as often, the accuracy says nothing."""
    digests = []
    for seed in (0, 1):
        each = cell(seed=seed, looks=(OWN, OTHER))
        run = ledger.run(each)
        run.folder.mkdir(parents=True)
        run.write(run.recipe_file, each.recipe.model_dump_json())
        run.write(run.model_file, f"network {seed}")
        run.write(run.result_file, '{"test_accuracy": 0.5}')
        ledger.write(each, OWN, {"accuracy": 50.0})
        digests.append(digest_of(run.model_file)[:12])
    path, other = (ledger.folder / f"{cell(seed=seed).name}.values.json" for seed in (0, 1))
    assert ledger.values(cell()) == {"accuracy": 50.0}
    path.write_bytes(other.read_bytes())
    said = (
        f"{path} cannot be read (it was measured of the network {digests[1]}, where "
        f"{ledger.run(cell()).model_file} is {digests[0]}); was it edited? Remove it, and the cell "
        f"is measured again."
    )
    assert text_of(lambda: ledger.values(cell())) == said
    # A later look at the right network does not sign the earlier ones.
    ledger.write(cell(), OTHER, {"accuracy": 49.0})
    assert "it was measured of the network" in text_of(lambda: ledger.values(cell()))


def test_records_lie_in_the_ranges():
    """No number that was ever measured would be refused."""
    records = read_records("evidence", drafts=True).values()
    seen = {item for record in records for seed in record.seeds for item in seed.values.items()}
    assert len(seen) > 10_000
    numbers = {f"{re.split('[@+.]', name)[0]}.{k}": x for k, (name, x) in enumerate(seen)}
    assert Values(commit=None, looks={"layers@sign/test": numbers})
