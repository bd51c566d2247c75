"""Every file of a run is looked at, and for each that is not whole there is something to do."""

import json
import os
import shutil
from pathlib import Path

import pytest

import torchcaps as tc
from error_text import text_of
from laid_runs import Plain, tiny_images
from registries import as_before
from torchcaps import register_model
from torchcaps.errors import short
from torchcaps.tasks import check_run
from torchcaps.tasks.check_run import MENDS
from torchcaps.tasks.trained import open_trained
from torchcaps.tasks.values_file import write_values
from torchcaps.train import Run, fit, make_recipe

FILES = [name for name in MENDS if name != "best.safetensors"]


tiny = tiny_images(48, size=20)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    recipe = make_recipe(model="peer_sign_dynamic", data="tiny", epochs=1, batch_size=48)
    return fit(recipe, tmp_path_factory.mktemp("finished"))


@pytest.fixture
def run(finished, tmp_path):
    shutil.copytree(finished.folder, tmp_path / "run")
    return Run(tmp_path / "run")


def states(run: Run) -> dict[str, str]:
    return {file.name: file.state for file in check_run(run.folder).files}


def odd(run: Run) -> dict[str, str]:
    """Those of the files that are not whole."""
    return {name: state for name, state in states(run).items() if state != "whole"}


def test_a_whole_run_is_called_whole(run):
    found = check_run(run.folder)
    assert found.is_whole
    assert states(run) == dict.fromkeys(FILES, "whole") | {"digests.json": "whole"}
    assert "damaged" not in found.text()


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 128
    file.write_bytes(content)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    # There is nothing to remove of what is missing.
    ("harm", "state", "do"),
    [(flipped, "damaged", ": remove it; {}."), (Path.unlink, "missing", ": {}.")],
)
def test_a_file_is_named_with_what_to_do_and_nothing_else_is(run, name, harm, state, do):
    harm(run.folder / name)
    assert odd(run) == {name: state}
    found = check_run(run.folder)
    assert f"{name} is {state}{do.format(MENDS[name])}" in found.text()
    assert json.loads(json.dumps(found.numbers()))["whole"] is False


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_is_damaged_and_not_waited_for(run, name):
    (run.folder / name).unlink()
    os.mkfifo(run.folder / name)
    assert states(run)[name] == "damaged"


def test_digests_that_cannot_be_read_leave_the_files_to_their_formats(run):
    (run.folder / "digests.json").write_text('{"a": 1')
    run.metrics_file.write_text("{}")
    assert odd(run) == {"digests.json": "damaged", "metrics.jsonl": "damaged"}
    run.model_file.unlink()
    assert states(run)["model.safetensors"] == "missing"
    # Nor does anybody else read the run meanwhile.
    assert "digests.json cannot be read" in text_of(lambda: run.recipe)


def test_a_state_is_judged_without_a_recipe_that_is_gone(run):
    run.recipe_file.unlink()
    (run.folder / "digests.json").unlink()
    assert odd(run) == {"digests.json": "missing", "recipe.json": "missing"}
    run.state_file.write_bytes(run.state_file.read_bytes()[:-1000])
    assert states(run)["state.ckpt"] == "damaged"


def test_a_state_of_another_recipe_is_told_without_digests(run):
    (run.folder / "digests.json").unlink()
    run.recipe_file.write_text(json.dumps({**json.loads(run.recipe_file.read_text()), "seed": 9}))
    (state,) = [file for file in check_run(run.folder).files if file.name == "state.ckpt"]
    assert state.state == "damaged"
    assert "is the state of another recipe" in state.why


def test_a_run_of_before_digests_lacks_none(run):
    (run.folder / "digests.json").unlink()
    about = json.loads(run.environment_file.read_text())
    del about["keeps_memory"]
    run.environment_file.write_text(json.dumps(about))
    found = check_run(run.folder)
    assert found.is_whole
    assert "digests.json" not in found.text()


@pytest.mark.parametrize("name", ["metrics.jsonl", "model.safetensors", "result.json"])
def test_what_is_advised_mends_it(run, finished, name):
    (run.folder / name).write_bytes(b"garbage")
    (run.folder / name).unlink()
    fit(run.recipe, run.folder)
    assert run.model_file.read_bytes() == finished.model_file.read_bytes()
    assert states(run)["model.safetensors"] == "whole"


@pytest.mark.parametrize("is_registered", [True, False])
def test_a_network_of_ones_own_is_whole_where_its_code_is_not(tmp_path, is_registered):
    fields = {"epochs": 1, "batch_size": 48}
    if is_registered:
        with as_before():
            register_model("mine", Plain, image=(1, 20, 20), n_classes=10)
            fit(make_recipe(model="mine", data="tiny", **fields), tmp_path / "run")
    else:
        own = {"own": (tiny("train"), tiny("test")), "model": Plain((1, 20, 20))}
        fit(make_recipe(model="own", data="own", keep="best", **fields), tmp_path / "run", **own)
    found = check_run(tmp_path / "run")
    assert found.is_whole, found.text()


def test_a_whole_network_of_another_run_is_not_that_of_this_one(run):
    other = tc.create_model("peer_sign_dynamic", image=(1, 20, 20), n_classes=10)
    tc.save(other, run.model_file)
    assert states(run)["model.safetensors"] == "damaged"
    for opened in (lambda: tc.load(run.folder), run.model, lambda: open_trained(run.folder)):
        assert "model.safetensors is damaged or was edited" in text_of(opened)


def test_the_best_network_of_another_run_is_not_trained_on(tmp_path):
    recipe = make_recipe(model="peer_sign_dynamic", data="tiny", epochs=1, batch_size=48)
    run = fit(recipe.model_copy(update={"keep": "best"}), tmp_path / "run")
    assert states(run)["best.safetensors"] == "whole"
    # As if it had been stopped before the end.
    run.result_file.unlink()
    run.model_file.unlink()
    other = tc.create_model("peer_sign_dynamic", image=(1, 20, 20), n_classes=10)
    tc.save(other, run.best_file)
    said = text_of(lambda: fit(run.recipe, run.folder))
    assert "best.safetensors is damaged or was edited" in said


@pytest.mark.parametrize("name", ["state.ckpu", "../recipe.json", "\x1b[2J" * 100])
def test_a_name_that_no_run_writes_is_told(run, name):
    path = run.folder / "digests.json"
    known = json.loads(path.read_text())
    # The file whose name was lost is compared with nothing.
    path.write_text(json.dumps({**known, name: known.pop("state.ckpt")}))
    found = check_run(run.folder)
    (named,) = [file for file in found.files if file.state != "whole"]
    assert (named.name, named.state) == ("digests.json", "damaged")
    assert named.why == (
        f"{path} names {short(name)}, which no run writes; was the name of a file changed there, "
        f"or did a later torchcaps write it?"
    )


def test_what_a_study_measured_beside_a_run_is_looked_at(run, monkeypatch):
    path = run.folder.with_name("run.values.json")
    measured = {"accuracy@tiny/test": {"accuracy": run.accuracy}}
    write_values(path, {"commit": None, "looks": measured})
    assert states(run)["run.values.json"] == "whole"
    monkeypatch.chdir(run.folder)
    assert check_run(".").files[-1].name == "run.values.json"
    for change in (run.accuracy + 1, 110.0):
        measured["accuracy@tiny/test"]["accuracy"] = change
        write_values(path, {"commit": None, "looks": measured})
        found = check_run(run.folder)
        assert {file.name for file in found.files if file.state == "damaged"} == {path.name}
        assert "run.values.json is damaged: remove it; the study measures the run again." in (
            found.text()
        )
    # A damaged result is told of itself.
    write_values(path, {"commit": None, "looks": {"accuracy@tiny/test": {"accuracy": 1.0}}})
    run.result_file.write_text("{")
    assert [name for name, state in states(run).items() if state == "damaged"] == ["result.json"]
