"""`torchcaps study`: claims as rows, tables as commands."""

import json
import sys

import pytest

from torchcaps.cli import main


@pytest.fixture
def call(monkeypatch, capsys):
    """The command line in this process: exit code, standard output, standard error."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["torchcaps", "study", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        return (stop.value.code or 0, *capsys.readouterr())

    return call


def test_claims_are_rows(call):
    code, out, err = call("claims", "--paper", "peer2022", "--json")
    rows = json.loads(out)
    assert (code, err, len(rows)) == (0, "", 73)
    assert {"id", "status"} <= rows[0].keys()


def test_claims_are_lines(call):
    code, out, _ = call("claims", "--paper", "gu2021", "--status", "cited")
    assert code == 0
    assert out.splitlines()[0] == (
        "gu2021-t1-ge-capsnet-mnist  cited (cited)  test accuracy 98.42 %"
    )
    assert len(out.splitlines()) == 8


def test_a_table_is_printed_and_not_run(call):
    code, out, err = call("table", "peer2022", 1, "--dry-run", "--root", "sets")
    assert (code, err) == (0, "")
    assert out.startswith("peer2022-t1-rba-nobias  training accuracy 49.61 %\n    torchcaps train ")
    code, out, err = call("table", "peer2022", 1, "--dry-run", "--json")
    assert (code, err, json.loads(out)["table"]) == (0, "", 1)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["table", "peer2022", 1],
            "torchcaps: this prints the commands of a table with --dry-run; `torchcaps study run "
            "peer2022 1` runs it.\n",
        ),
        (
            ["table", "peer2022", 4, "--dry-run"],
            "torchcaps: no claim is a cell of Table 4 of peer2022; there are claims of its tables "
            "1, 2, 3. Numbers of the text and statements are in `torchcaps study claims --paper "
            "peer2022`.\n",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(call, words, sentence):
    assert call(*words) == (2, "", sentence)
