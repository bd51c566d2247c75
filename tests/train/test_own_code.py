"""Importing a file because the command says so, and asking for it again where a run needs it."""

import sys
from pathlib import Path

import pytest

from error_text import text_of
from torchcaps.train import own_code
from torchcaps.train.folder.environment import check_imported
from torchcaps.train.own_code import fault_of_own_code, import_file, imported_files


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    monkeypatch.setattr(own_code, "_IMPORTED", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("mine"):
            del sys.modules[name]


def file(folder, text, name="mine_own.py"):
    (folder / name).write_text(text)
    return folder / name


def test_a_file_is_imported_once_and_its_digest_kept(tmp_path):
    (tmp_path / "mine_beside.py").write_text("VALUE = 3\n")
    path = file(tmp_path, "from mine_beside import VALUE\nWAS = [VALUE]\n")
    import_file(path)
    sys.modules["mine_own"].WAS.append(4)
    import_file(path)
    assert sys.modules["mine_own"].WAS == [3, 4]
    (seen,) = imported_files()
    assert seen["path"] == str(path)
    assert len(seen["sha256"]) == 64


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("mine.txt", "", "--import takes a Python file named like a module, for example"),
        ("mine-own.py", "", "--import takes a Python file named like a module, for example"),
        ("json.py", "", "there is a module 'json' already; give the file another name."),
        ("mine_own.py", "a = 1\nb = c\n", "NameError: name 'c' is not defined (line 2); mend"),
        ("mine_own.py", "a = (\n", "SyntaxError: "),
    ],
)
def test_what_cannot_be_imported_is_a_sentence(tmp_path, name, text, words):
    path = file(tmp_path, text, name)
    sentence = text_of(lambda: import_file(path))
    assert words in sentence
    assert imported_files() == []
    assert "mine_own" not in sys.modules


def test_a_fault_is_that_of_the_file_whose_line_raised_it_last(tmp_path):
    path = file(
        tmp_path,
        "from torchcaps.errors import nearest\n"
        "def mine():\n    return 1 / 0\n"
        "def by_python():\n    return sorted(None)\n"
        "def ours():\n    return nearest('a', None)\n",
    )
    import_file(path)

    def fault(call):
        with pytest.raises((ZeroDivisionError, TypeError)) as error:
            call()
        return fault_of_own_code(error.value)

    mine = sys.modules["mine_own"]
    sentence = f"{path} failed in line 3: ZeroDivisionError: division by zero; mend the file."
    assert fault(mine.mine) == sentence
    assert fault(mine.by_python).startswith(f"{path} failed in line 5: TypeError: ")
    # torchcaps was called with what it should have refused.
    assert fault(mine.ours) is None
    assert fault(lambda: 1 / 0) is None


def test_a_file_that_is_not_there(tmp_path):
    assert "there is no file" in text_of(lambda: import_file(tmp_path / "mine_own.py"))


def test_a_run_asks_for_its_file_and_tells_another_version(tmp_path, caplog):
    began = {"imported": [{"path": "/far/mine_own.py", "sha256": "0" * 64}]}
    assert text_of(lambda: check_imported(Path("run"), began)) == (
        "run was trained with code of your own, mine_own.py, which a run does not carry; add "
        "--import mine_own.py to the command, or import it first in Python."
    )
    import_file(file(tmp_path, ""))
    check_imported(Path("run"), began)
    assert "run was begun with another version of mine_own.py (SHA-256 0000" in caplog.text


@pytest.mark.parametrize("found", [[1], {"/etc/passwd": "x"}, 7, [{"path": "a.py"}]])
def test_files_of_ones_own_in_another_shape_are_a_sentence(tmp_path, found):
    words = text_of(lambda: check_imported(tmp_path, {"imported": found}))
    start = f"{tmp_path / 'environment.json'} cannot be read ('imported' should hold a path and "
    assert words.startswith(start)
