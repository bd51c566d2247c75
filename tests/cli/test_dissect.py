"""`torchcaps dissect`: the path of the page, or its numbers, on standard output."""

import json

from cli.command_line import printed


def test_dissect_prints_the_path_of_the_page_alone(trained, tmp_path, call):
    page = tmp_path / "page.html"
    assert printed(call("dissect", trained, "--out", page)) == f"{page}\n"
    assert "12 of 12 of part-whole (" in page.read_text()


def test_dissect_prints_every_number_as_json_by_the_name_of_the_folder_from_inside_too(
    trained, tmp_path, call, monkeypatch
):
    page = tmp_path / "page.html"
    monkeypatch.chdir(trained)
    words = ["dissect", ".", "--out", page, "--json", "--images", 8]
    numbers = json.loads(printed(call(*words)))[trained.name]
    assert numbers["images"] == 8
    assert sum(numbers["classes"].values()) == 8
    assert len(numbers["dynamics"]["layers"]) == 4
    assert page.is_file()
