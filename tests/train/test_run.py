"""A run folder: made once, never for another recipe, every file old or new and never half."""

import importlib
import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

from damage import MEGABYTE, at_most
from error_text import text_of
from laid_runs import contents
from single_steps import ending
from torchcaps._paths import write_whole
from torchcaps.errors import TorchcapsError
from torchcaps.train import Run, make_recipe
from torchcaps.train.folder import environment as environment_module
from torchcaps.train.folder.environment import _commit_of, commit, environment

RUN = importlib.import_module("torchcaps.train.folder.run")
RECIPE = make_recipe(model="capsnet", data="mnist", epochs=2)
RESULT = {"test_accuracy": 0.5, "training_images": 3}


def test_begin_alone_makes_the_folder_and_a_result_ends_it(tmp_path):
    run = Run(tmp_path / "a" / "run")
    run.check(RECIPE)
    assert not run.folder.exists()
    run.begin(RECIPE, "abc")
    names = sorted(file.name for file in run.folder.iterdir())
    assert names == ["digests.json", "environment.json", "recipe.json"]
    assert run.recipe == RECIPE
    assert run.metrics() == []
    # Begun again, it is as it was.
    before = contents(run.folder)
    run.check(RECIPE)
    run.begin(RECIPE, "abc")
    assert contents(run.folder) == before
    run.model_file.write_bytes(b"")
    assert not run.is_done
    run.write(run.result_file, json.dumps(RESULT))
    assert run.is_done
    assert run.result() == RESULT
    run.model_file.unlink()
    assert not run.is_done


def test_other_code_that_goes_on_is_written_down(tmp_path, monkeypatch):
    """A run that clean code began and changed code went on with is no run of clean code."""
    run = Run(tmp_path)
    for now in ("a1", "b2+changes", "a1", "c3", "b2+changes"):
        for module in (RUN, environment_module):
            monkeypatch.setattr(module, "commit", lambda now=now: now)
        run.begin(RECIPE, "abc")
    assert run.commits() == ["a1", "b2+changes", "c3"]
    assert run.about()["commit"] == "a1"


def test_a_run_begun_before_recipes_named_their_protocol_goes_on(tmp_path):
    run, line = Run(tmp_path), make_recipe(protocol="rem", model="capsnet", data="mnist")
    fields = line.model_dump(mode="json")
    del fields["protocol"]
    run.begin(make_recipe(**fields), "abc")
    assert run.recipe != line
    run.check(run.settled(line))
    assert run.settled(line) == run.recipe


def test_a_run_keeps_the_layout_that_it_was_begun_with(tmp_path):
    named = {"model": "efficient_capsnet", "data": "mnist"}
    run, line = Run(tmp_path), make_recipe(**named)
    assert run.settled(line) == line
    old = make_recipe(**named, channels_last=False)
    run.begin(old, "abc")
    assert run.settled(line) == old
    assert run.settled(make_recipe(**named, epochs=9)).channels_last is False
    run.check(run.settled(line))
    # What somebody says is not left to torchcaps.
    asked = make_recipe(**named, channels_last=True)
    assert run.settled(asked) == asked
    text = text_of(lambda: run.check(run.settled(asked)))
    assert "channels_last False there, True here" in text


def test_another_recipe_is_refused_and_the_differences_listed(tmp_path):
    Run(tmp_path).begin(RECIPE, "abc")
    before = contents(tmp_path)
    other = make_recipe(model="capsnet", data="mnist", epochs=3, seed=5)
    assert text_of(lambda: Run(tmp_path).check(other)) == (
        f"{tmp_path} holds a run of another recipe (epochs 2 there, 3 here; seed 0 there, 5 here); "
        f"continue it with its own recipe, remove it, for it has no epoch yet, or choose another "
        f"folder."
    )
    assert contents(tmp_path) == before
    Run(tmp_path).metrics_file.write_text("")
    assert text_of(lambda: Run(tmp_path).check(other)).endswith(
        "; continue it with its own recipe, or choose another folder."
    )


@pytest.mark.parametrize("leftovers", [[], [".recipe.json.12.partial", "state.partial"]])
def test_an_empty_folder_will_do_and_so_will_one_of_leftovers(tmp_path, leftovers):
    for name in leftovers:
        (tmp_path / name).write_text('{"mod')
    run = Run(tmp_path)
    run.check(RECIPE)
    run.begin(RECIPE, "abc")
    run.check(RECIPE)
    assert run.recipe == RECIPE


def test_a_file_in_place_of_the_folder_is_told(tmp_path):
    file = tmp_path / "run"
    file.write_text("years of work")
    assert text_of(lambda: Run(file).check(RECIPE)) == f"{file} is a file; a run needs a folder."
    assert file.read_text() == "years of work"


def test_a_recipe_that_cannot_be_read_is_told(tmp_path):
    Run(tmp_path).begin(RECIPE, "abc")
    (tmp_path / "recipe.json").write_text('{"model"')
    with pytest.raises(TorchcapsError, match=r"recipe\.json is damaged or was edited: its SHA-256"):
        Run(tmp_path).check(RECIPE)
    # As runs of earlier versions are.
    (tmp_path / "digests.json").unlink()
    with pytest.raises(TorchcapsError, match=r"recipe\.json cannot be read as JSON"):
        Run(tmp_path).check(RECIPE)


BROKEN = {
    "null": b"null",
    "list": b"[]",
    "empty": b"",
    "object without keys": b"{}",
    "number": b"1",
    "cut": b'{"epoch"',
    "not text": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "long": b"9" * 5_000,
}


@pytest.mark.parametrize("damage", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("with_digests", [True, False])
@pytest.mark.parametrize("name", ["result", "metrics", "environment"])
def test_a_broken_piece_is_a_sentence(tmp_path, damage, with_digests, name):
    run = Run(tmp_path)
    run.begin(RECIPE, "abc")
    run.write_metrics([{"epoch": 1}])
    run.write(run.result_file, json.dumps(RESULT))
    file = next(tmp_path.glob(f"{name}.json*"))
    if not with_digests:
        (tmp_path / "digests.json").unlink()
    file.write_bytes(damage)
    read = {
        "result": run.result,
        "metrics": run.metrics,
        "environment": lambda: run.begin(RECIPE, "abc"),
    }[name]
    if name == "metrics" and not with_digests and not damage:
        assert read() == []
        return
    if name == "result" and not with_digests and damage == b"{}":
        assert read() == {}
        return
    said = text_of(read)
    assert f"{file} " in said or "was begun on other training images" in said


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"digests": None}, "'digests' do not name the images"),
        ({"digests": 5}, "'digests' do not name the images"),
        ({"digests": ["test"]}, "'digests' do not name the images"),
        ({"digests": {"test": 5}}, "'digests' do not name the images"),
        ({"training_images": None}, "'training_images' is no number"),
        ({"training_images": float("nan")}, "'training_images' is no number"),
        ({"groups": [4]}, "'groups' does not tell how images are parted"),
        ({"groups": {"train": 4}}, "'groups' does not tell how images are parted"),
    ],
    ids=str,
)
def test_a_result_of_another_shape_is_a_sentence(tmp_path, changed, why):
    """As runs of earlier versions may hold, which have no digests."""
    run = Run(tmp_path)
    run.result_file.write_text(json.dumps({**RESULT, **changed}))
    assert text_of(run.result) == (
        f"{run.result_file} cannot be read ({why}); was it edited, or its copy cut short? Remove "
        f"it, and the run makes it anew."
    )


@pytest.mark.parametrize(
    ("changed", "read"),
    [
        *(({"image_size": value}, "shown") for value in ([1], "ab", 3, [1, 0], [True, 2], {})),
        *(({"crop": value}, "shown") for value in (3, [2.5, 2], [1, 2, 3], False)),
        *(({"channels_last": value}, "is_channels_last") for value in ([1], 1, None)),
    ],
    ids=str,
)
def test_a_recipe_that_shows_images_in_no_way_is_a_sentence(tmp_path, changed, read):
    run = Run(tmp_path)
    run.recipe_file.write_text(json.dumps({**RECIPE.model_dump(mode="json"), **changed}))
    (name,) = changed
    expected = "true or false" if name == "channels_last" else "height and width in pixels, or null"
    assert text_of(lambda: getattr(run, read)) == (
        f"{run.recipe_file}: {name} must be {expected}, but came as {changed[name]!r}; was it "
        f"edited? Put it back as the run wrote it."
    )


def test_a_recipe_of_unknown_data_still_says_how_images_are_shown(tmp_path):
    run = Run(tmp_path)
    fields = {"data": "gone", "image_size": [30, 28], "crop": [24, 20], "channels_last": True}
    run.recipe_file.write_text(json.dumps(fields))
    assert run.shown == ((30, 28), (24, 20))
    assert run.is_channels_last
    run.recipe_file.write_text(json.dumps({"data": "gone"}))
    assert run.shown == (None, None)
    assert not run.is_channels_last


@pytest.mark.parametrize("name", ["result.json", "digests.json"])
def test_json_of_a_gigabyte_takes_no_memory(tmp_path, name):
    run = Run(tmp_path)
    run.finish({"test_accuracy": 1.0})
    if name != "digests.json":
        (tmp_path / "digests.json").unlink()
    os.truncate(tmp_path / name, 1 << 30)
    with at_most(8 * MEGABYTE):
        text = text_of(run.result)
    assert f"{tmp_path / name} cannot be read (it has 1,073,741,824 bytes, and JSON" in text


def test_a_row_of_a_gigabyte_is_refused_early(tmp_path, monkeypatch):
    run = Run(tmp_path)
    run.write_metrics([{"epoch": 1}, {"epoch": 2}])
    (tmp_path / "digests.json").unlink()
    os.truncate(run.metrics_file, 1 << 30)
    monkeypatch.setattr("torchcaps._json.MOST_OF_LINE", MEGABYTE)
    with at_most(8 * MEGABYTE):
        text = text_of(run.metrics)
    assert f"{run.metrics_file} cannot be read (a line has more than 1,048,576 bytes); was" in text


def test_a_wrong_row_is_told_before_the_next_is_read(tmp_path):
    run = Run(tmp_path)
    run.metrics_file.write_text('{"epoch": "1"}\n\x00')
    assert "metrics.jsonl cannot be read ('epoch' is no number)" in text_of(run.metrics)


@pytest.mark.parametrize("with_digests", [True, False])
def test_a_folder_in_the_place_of_metrics_is_told(tmp_path, with_digests):
    run = Run(tmp_path)
    run.begin(RECIPE, "abc")
    if not with_digests:
        (tmp_path / "digests.json").unlink()
    run.metrics_file.mkdir()
    for read in (run.metrics, lambda: run.seconds):
        assert "metrics.jsonl cannot be read (it is a folder or a device)" in text_of(read)


def test_what_killed_processes_left_is_removed(tmp_path):
    run = Run(tmp_path)
    run.begin(RECIPE, "abc")
    (tmp_path / ".result.json.123.partial").write_text("half")
    (tmp_path / "state.partial").write_text("half")
    (tmp_path / "ubuntu.iso.partial").write_text("somebody's own")
    run.remove_partial_files()
    assert [file.name for file in tmp_path.glob("*.partial")] == ["ubuntu.iso.partial"]
    assert not list(tmp_path.glob(".*.partial"))
    assert run.recipe == RECIPE


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    file = tmp_path / "result.json"
    write_whole(file, "old")
    seen = []

    def broken(self, target):
        seen.append((self.parent == target.parent, self.read_text(), file.read_text()))
        raise OSError("disk on fire")

    with ending(Path, "replace", broken, OSError, "disk on fire"):
        write_whole(file, "new")
    # The new text lay complete beside the old one, on the same disk, before the change.
    assert seen == [(True, "new", "old")]
    assert file.read_text() == "old"
    write_whole(file, "newer")
    assert file.read_text() == "newer"


def test_the_environment_says_what_numbers_depend_on(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/torchcaps", "train", "--seed", "3"])
    found = environment()
    assert found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    assert found["command"] == "torchcaps train --seed 3"
    monkeypatch.setattr("sys.argv", ["/somewhere/torchcaps/__main__.py", "train"])
    assert environment()["command"] == "torchcaps train"
    assert found["machine"].endswith(f", {os.cpu_count()} cores")
    assert json.loads(json.dumps(found)) == found
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "a GPU")
    assert environment()["machine"].endswith(" cores, a GPU")


def test_the_commit_is_that_of_the_source_and_tells_of_changes(tmp_path):
    package = tmp_path / "src" / "torchcaps"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    assert _commit_of(package) is None

    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *who, *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "--quiet")
    (tmp_path / "thesis.tex").write_text("")
    git("add", "thesis.tex")
    git("commit", "--quiet", "-m", "somebody else's")
    # Installed inside a repository that does not track it: that commit tells nothing.
    assert _commit_of(package) is None
    git("add", "src")
    git("commit", "--quiet", "-m", "ours")
    head = git("rev-parse", "--short=12", "HEAD")
    # Looking must not write: a process that is killed meanwhile would leave git's lock behind.
    os.utime(package / "__init__.py", (1, 1))
    index = (tmp_path / ".git" / "index").read_bytes()
    assert _commit_of(package) == head
    assert (tmp_path / ".git" / "index").read_bytes() == index
    (package / "__init__.py").write_text("changed = True\n")
    assert _commit_of(package) == head + "+changes"


@pytest.mark.parametrize(
    ("first", "now", "said"),
    [
        ("aaa", "aaa", "aaa"),
        # Code that was edited when it was loaded is not that of a commit made later.
        ("aaa+changes", "bbb", "aaa+changes"),
        # Somebody goes on with other work in the same tree.
        ("aaa", "bbb", "aaa"),
        ("aaa", "bbb+changes", "aaa+changes"),
        ("aaa", None, None),
        (None, "bbb", None),
    ],
)
def test_the_commit_is_that_of_the_code_in_memory(monkeypatch, first, now, said):
    monkeypatch.setattr(environment_module, "_first_commit", lambda: first)
    monkeypatch.setattr(environment_module, "_commit_of", lambda source: now)
    assert commit() == said


def test_the_first_commit_is_read_once(monkeypatch):
    environment_module._first_commit.cache_clear()
    found = iter(["aaa", "bbb"])
    monkeypatch.setattr(environment_module, "_commit_of", lambda source: next(found))
    try:
        assert [environment_module._first_commit() for _ in range(3)] == ["aaa"] * 3
    finally:
        environment_module._first_commit.cache_clear()
