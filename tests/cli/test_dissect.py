"""`torchcaps dissect`: the path of the page, or its numbers, on standard output."""

import json
from pathlib import Path

import pytest

from cli.command_line import TRAIN, Call, Done, assert_one_sentence


def test_dissect_prints_the_path_of_the_page_alone(
    trained: Path, tmp_path: Path, call: Call
) -> None:
    page = tmp_path / "page.html"
    done = call("dissect", trained, "--out", page)
    assert done == Done(0, f"{page}\n", "")
    assert "12 of 12 of part-whole (" in page.read_text()


def test_dissect_prints_every_number_as_json(trained: Path, tmp_path: Path, call: Call) -> None:
    page = tmp_path / "page.html"
    done = call("dissect", trained, "--out", page, "--json", "--images", 8)
    assert (done.code, done.err) == (0, "")
    numbers = json.loads(done.out)["run"]
    assert numbers["images"] == 8
    assert sum(numbers["classes"].values()) == 8
    assert len(numbers["dynamics"]["layers"]) == 4
    assert page.is_file()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["none"], "there is no run folder and no saved network at none."),
        ([".", "--images", "5"], ". holds no run (recipe.json is missing); name the folder"),
    ],
)
def test_dissecting_nothing_ends_in_one_sentence(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_one_sentence(call("dissect", *words), sentence)
    assert not list(tmp_path.iterdir())


def test_dissecting_a_saved_network_needs_the_name_of_its_data(trained: Path, call: Call) -> None:
    sentence = "is a saved network, which does not know its data; name it with --data."
    assert_one_sentence(call("dissect", trained / "model.safetensors"), sentence)


def test_dissecting_an_example_that_is_not_there_ends_in_one_sentence(
    trained: Path, tmp_path: Path, call: Call
) -> None:
    done = call("dissect", trained, "--example", 12, "--out", tmp_path / "page.html")
    assert_one_sentence(done, "example must be one of the 12 images, 0 to 11, but is 12.")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("out", "sentence"),
    [("a.txt", "the page must end in .html, but is a.txt."), (".", ". is a folder; name the page")],
)
def test_a_page_is_refused_by_its_name_before_anything_is_measured(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, out: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_one_sentence(call("dissect", "no-run", "--out", out), sentence)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_two_runs_of_one_name_keep_their_numbers_apart(
    trained: Path, tmp_path: Path, call: Call
) -> None:
    other = tmp_path / "other" / "run"
    assert call("train", *TRAIN, "--seed", 6, "--out", other).code == 0
    done = call("dissect", trained, other, "--out", tmp_path / "page.html", "--json")
    assert len(json.loads(done.out)) == 2


def test_the_page_is_no_folder(call: Call, trained: Path, tmp_path: Path) -> None:
    done = call("dissect", trained, "--out", tmp_path, "--images", 2)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "is a folder; name the page itself" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_called_by_its_folder_from_inside_too(
    call: Call, trained: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(trained)
    done = call("dissect", ".", "--json", "--out", tmp_path / "page.html", "--images", 2)
    assert list(json.loads(done.out)) == [trained.name]
