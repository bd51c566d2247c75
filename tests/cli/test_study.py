"""`torchcaps study`: claims as rows, tables as commands."""

import json
from functools import partial
from pathlib import Path

import pytest

from cli.command_line import printed, well
from made_records import record
from registries import as_before
from torchcaps.study import pool, write_record
from torchcaps.study.ledger import Ledger
from torchcaps.study.own import read_study
from torchcaps.study.work import Terms, work


@pytest.fixture
def call(call):
    return partial(call, "study")


def test_claims_are_rows(call):
    rows = json.loads(printed(call("claims", "--paper", "peer2022", "--json")))
    assert len(rows) == 73
    assert {"id", "status"} <= rows[0].keys()


def test_claims_are_lines(call):
    lines = well(call("claims", "--paper", "gu2021", "--status", "cited")).out.splitlines()
    assert lines[0] == "gu2021-t1-ge-capsnet-mnist  cited (cited)  test accuracy 98.42 %"
    assert len(lines) == 8


def test_claims_without_a_folder_of_records_say_so(call, tmp_path):
    where = tmp_path / "evidnece"
    code, out, err = call("claims", "--paper", "peer2022", "--evidence", where)
    assert (code, len(out.splitlines())) == (0, 73)
    assert err == (
        f"there is no folder {where}, so no claim has a record here; --evidence names the folder "
        f"of the records\n"
    )
    assert call("report", "--evidence", where, "--out", tmp_path / "claims.html")[2] == err


def test_a_table_is_printed_and_not_run(call):
    out = printed(call("table", "peer2022", 1, "--dry-run", "--root", "sets"))
    first, left_open, second, third, *_ = out.splitlines()
    assert left_open.startswith("    # the paper leaves open: ")
    assert first == "peer2022-t1-rba-nobias  training accuracy 49.61 %"
    assert second.startswith("    # judged by the mean over seeds ")
    assert third.startswith("    torchcaps train --protocol peer --model peer_sign_dynamic ")
    out = printed(call("table", "peer2022", 1, "--dry-run", "--json"))
    assert json.loads(out)["table"] == 1


def test_one_claim_is_printed_with_the_hours_of_a_gpu(call):
    words = ("table", "peer2022-q-sign-not-learnable", "--dry-run", "--gpu-tflops", 2)
    out = printed(call(*words))
    assert "on two cores, at least " in out
    assert out.endswith("2 TFLOP a second on the GPU.\n")
    assert call(*words[:2])[2].endswith("`torchcaps study run peer2022-q-sign-not-learnable`.\n")


def test_the_status_of_a_table(call, tmp_path):
    words = ("status", "peer2022", 1, "--out", tmp_path)
    numbers = json.loads(printed(call(*words, "--by", "cost", "--json")))
    assert (numbers["study"], numbers["cells"], numbers["left"]) == ("peer2022/table1", 20, 20)
    hours = [row["hours_left"] for row in numbers["systems"]]
    assert hours == sorted(hours)
    assert numbers["cannot_be_run"] == []
    out = well(call(*words, "--seeds", 2)).out
    assert out.startswith("0 of 8 cells done, 0 running, 8 left: about ")


@pytest.fixture
def given(monkeypatch):
    """Lists the settings of every study, which is run in this process: no pool is started."""
    given = []

    def in_process(study, settings, *, watch):
        given.append(settings)
        work(study.cells(), Ledger(settings.folder), Terms(settings.root))
        watch({cell.name: "done" for cell in study.cells()})
        return []

    monkeypatch.setattr(pool, "run_study", in_process)
    return given


@pytest.fixture
def lay(tmp_path, monkeypatch):
    """Lays a study of one epoch in the folder that a line is typed in."""
    monkeypatch.chdir(tmp_path)

    def lay(text='model = "peer_sign_em"\n', more=""):
        fields = 'data = "sign"\nepochs = 1\nbatch_size = 4000\n'
        (tmp_path / "my.toml").write_text(f"{text}{fields}{more}")

    return lay


@pytest.mark.usefixtures("given")
def test_a_study_of_ones_own_is_run_and_compared(call, lay, tmp_path):
    lay()
    code, out, err = call("run", "my.toml", "--evidence", "records")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["seeds", "accuracy,", "%", "training,", "a", "run"]
    assert lines[1].startswith("peer_sign_em  1      50")
    assert (tmp_path / "runs" / "my.svg").is_file()
    assert "drawn in runs/my.svg" in err


NET = """
import torch
import torchcaps as tc

class Net(torch.nn.Module):
    def __init__(self, image=(1, 1, 1), n_classes=2):
        super().__init__()
        self.layer = torch.nn.Linear(1, n_classes)

    def forward(self, images):
        return tc.Output(self.layer(images.flatten(1)), "logits")

tc.register_model("mine_of_study", Net, image=(1, 1, 1), n_classes=2)
"""


@pytest.fixture
def file(tmp_path):
    """A network of one's own, which nobody knows afterwards."""
    (tmp_path / "mine_of_study.py").write_text(NET)
    with as_before():
        yield tmp_path / "mine_of_study.py"


def test_a_study_of_ones_own_network_takes_its_file(call, lay, file, given):
    """`train` took --import, and its message named it to whoever ran a study, which refused it."""
    lay('model = "mine_of_study"\n')
    code, out, err = call("run", "my.toml")
    assert (code, out) == (2, "")
    assert err.endswith(
        "; one of your own is known after register_model, on the command line by --import of its "
        "file.\n"
    )
    code, out, err = call("run", "my.toml", "--import", "mine_of_study.py")
    assert (code, "mine_of_study  1" in out) == (0, True), err
    assert given[0].imports == (Path("mine_of_study.py"),)
    assert given[0].for_elsewhere().imports == (file,)
    code, out, err = call("status", "my.toml", "--import", "mine_of_study.py")
    assert (code, out.startswith("1 of 1 cells done")) == (0, True), err


def test_a_study_says_itself_which_file_is_its_own(call, lay, tmp_path, file, given, monkeypatch):
    """`import` begins at the folder of the study, wherever the line is typed."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    vary = '[vary]\nmodel = ["mine_of_study", "peer_sign_em"]\nseed = [0, 1]\n'
    lay('import = ["mine_of_study.py"]\n', vary)
    line = ("run", "../my.toml", "--baseline")
    code, out, err = call(*line, "peer_sign_em")
    less = "mine_of_study lambda_=0.5 less peer_sign_em lambda_=0.0  2 "
    assert (code, less in out) == (0, True), err
    assert given[0].for_elsewhere().imports == (file,)
    assert call("status", "../my.toml").out.startswith("4 of 4 cells done")
    assert call(*line, "capsnet").err.endswith(
        "torchcaps: --baseline 'capsnet' must stand in the name of one line, or of one for each "
        "data set, but stands in 0 of: mine_of_study lambda_=0.5; peer_sign_em lambda_=0.0.\n"
    )
    lay('import = "mine_of_study.py"\n')
    assert 'import must list files of your own, import = ["my.py"], but is ' in call(*line, "x").err


def test_records_of_changed_code_are_said_to_be_drafts(call, lay, tmp_path, monkeypatch):
    """As the studies of papers say it; one of one's own printed its table as if nothing were."""
    made = [
        record("peer_sign_em", "sign", values={"accuracy": [50.0]}).model_copy(update=how)
        for how in ({}, {"dirty": True}, {"commit": None})
    ]
    paths = [write_record(each, tmp_path / "evidence") for each in made]
    monkeypatch.setattr(pool, "run_study", lambda *_, **__: paths)
    lay()
    assert call("run", "my.toml") == (
        0,
        "",
        "drafts, which no page of results shows: 2 of 3 records; the code had changes, or was no "
        "commit\n",
    )
    assert "2 of 3 records" in call("run", "my.toml", "--json")[2]
    monkeypatch.setattr(pool, "run_study", lambda *_, **__: paths[:1])
    assert call("run", "my.toml") == (0, "", "")


@pytest.mark.usefixtures("given")
@pytest.mark.parametrize("n_failed", [1, 2])
def test_seeds_that_failed_are_named_beside_the_comparison(call, lay, tmp_path, n_failed):
    """They are in no mean; where all of them failed nothing at all was printed."""
    lay('name = "a/b"\nmodel = "peer_sign_em"\n', "[vary]\nseed = [0, 1]\n")
    for cell in read_study("my.toml").cells()[-n_failed:]:
        Ledger(Path("runs")).fail(cell, "the loss became nan in epoch 1.", is_result=True)
    code, out, err = call("run", "my.toml", "--json")
    assert code == 0
    found = json.loads(out)
    assert len(found["failed"]) == n_failed
    assert {*found["failed"].values()} == {"the loss became nan in epoch 1."}
    name = next(reversed(found["failed"]))
    assert f"{name} failed and is in no mean: the loss became nan in epoch 1." in err
    assert [each["seeds"] for each in found["variants"]] == [[0]][: 2 - n_failed]
    assert (tmp_path / "runs" / "a-b.svg").is_file() == (n_failed == 1)


@pytest.fixture
def readme(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(
        "<!-- claims: made by `make tables` -->\nold\n<!-- end of claims -->\nthe rest\n"
    )
    return path


def test_pages_and_the_report_are_written(call, tmp_path, readme):
    # It has nothing that the claim asks for, so it judges none.
    write_record(record("peer_sign_em", "sign", values={"keys": [3.0]}), tmp_path / "evidence")
    there = ("--evidence", tmp_path / "evidence")
    out = printed(call("tables", *there, "--out", tmp_path / "docs", "--readme", readme))
    assert str(readme) in out.splitlines()
    assert "| all | 947 | 0 / 0 | 0 / 0 |" in readme.read_text()
    assert readme.read_text().endswith("<!-- end of claims -->\nthe rest\n")
    out = printed(call("report", *there, "--out", tmp_path / "claims.html"))
    assert out == f"{tmp_path / 'claims.html'}\n"
