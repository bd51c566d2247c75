"""`torchcaps dissect`: the path of the page, or its numbers, on standard output."""

import json
from pathlib import Path

import pytest

from cli.command_line import Call, printed


def test_dissect_prints_the_path_of_the_page_alone(
    trained: Path, tmp_path: Path, call: Call
) -> None:
    page = tmp_path / "page.html"
    assert printed(call("dissect", trained, "--out", page)) == f"{page}\n"
    assert "12 of 12 of part-whole (" in page.read_text()


def test_dissect_prints_every_number_as_json_by_the_name_of_the_folder_from_inside_too(
    trained: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    monkeypatch.chdir(trained)
    words = ["dissect", ".", "--out", page, "--json", "--images", 8]
    numbers = json.loads(printed(call(*words)))[trained.name]
    assert numbers["images"] == 8
    assert sum(numbers["classes"].values()) == 8
    assert len(numbers["dynamics"]["layers"]) == 4
    assert page.is_file()
