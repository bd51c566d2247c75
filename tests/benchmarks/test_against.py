"""Two commits are timed by turns, and what became worse is named."""

import json
import sys
import types
from pathlib import Path

import against
import pytest
import speed
import subjects
import torch
from cases import CASES, tiny
from contestants import CONTESTANTS, environment
from harness import Settings
from subjects import build

ROOT = Path(__file__).parents[2]


def clock(ms, mb):
    times = {"ms": [ms, ms], "cpu_ms": [ms, ms], "peak_mb": mb, "load": 0.1, "least_mb": 1.0}
    return lambda: times


def row_of(now, before, *, name="dynamic-full", rounds=2):
    asked = []

    def launch(task, _, settings):
        asked.append((task["task"], task["contestant"]["name"]))
        return (before if task["contestant"]["sources"] else now)()

    settings = Settings(rounds=rounds)
    row = against.compared(CASES[name], "abc", Path("/else/src"), settings, launch=launch)
    return row, asked


def test_both_commits_take_turns_and_no_parity_is_asked():
    row, asked = row_of(clock(10.0, 50.0), clock(12.0, 40.0))
    turn = [("clock", "ours-by-default"), ("clock", "ours-by-default@abc")]
    assert asked == turn * 2
    assert (row["speed"], row["memory"], row["rounds"]) == (1.2, 1.25, 2)


@pytest.mark.parametrize(
    ("now", "flags"),
    [
        ((100.0, 100.0), []),
        ((110.0, 109.0), []),
        ((112.0, 100.0), ["slower"]),
        ((50.0, 111.0), ["more memory"]),
        ((112.0, 111.0), ["slower", "more memory"]),
    ],
)
def test_what_became_worse_is_named(now, flags):
    row, _ = row_of(clock(*now), clock(100.0, 100.0))
    assert row["flags"] == flags
    assert against.report([row]).endswith(", ".join(flags) or "×")


def test_a_failure_is_named_too():
    row, _ = row_of(clock(1.0, 1.0), lambda: {"failure": "out of memory"})
    assert row["flags"] == ["failed"]
    assert against.report([row]).endswith("out of memory")


def test_the_heaviest_case_has_one_round():
    row, asked = row_of(clock(1.0, 1.0), clock(1.0, 1.0), name="dynamic-heavy-full")
    assert (row["rounds"], len(asked)) == (1, 2)


def test_there_are_ten_cases_and_networks_train_and_predict():
    trained = [CASES[name].preset for name in against.NAMED if CASES[name].task == "train"]
    predicted = [CASES[name].preset for name in against.NAMED if CASES[name].task == "infer"]
    assert trained == predicted
    assert len(trained) + sum(CASES[name].task == "op" for name in against.NAMED) == 10


def test_the_other_commit_is_imported_from_its_own_folder():
    _, other = against.pairs("abc", Path("/else/src"))
    assert environment(other) == {"TORCHCAPS_NATIVE": "1", "PYTHONPATH": "/else/src"}


def test_a_commit_that_does_not_exist_ends_the_run():
    with pytest.raises(SystemExit, match=r"git rev-parse .*no-such-commit"):
        against.named("no-such-commit")


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no git checkout: no other commit")
def test_a_tiny_run_writes_a_whole_record(tmp_path, monkeypatch):
    """From end to end, against the commit of this very checkout."""
    out = tmp_path / "against.json"
    words = ["--against", "HEAD", "--tiny", "--rounds", "1", "--seconds", "0.01"]
    words += ["--cases", "dynamic-detach", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["speed.py", *words])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # Of two tiny runs any may be the faster.
    monkeypatch.setattr(against, "LEAST_SPEED", 0.0)
    monkeypatch.setattr(against, "MOST_MEMORY", 100.0)
    speed.main()
    record = json.loads(out.read_text())
    assert record["against"] == against.named("HEAD")
    (row,) = record["rows"]
    assert row["flags"] == []
    assert row["now"]["contestant"] == "ours-by-default"
    assert row["before"]["contestant"] == f"ours-by-default@{record['against']}"
    assert row["speed"] == pytest.approx(row["before"]["ms"] / row["now"]["ms"])


def test_each_commit_sets_what_its_own_fit_sets(monkeypatch):
    """By the table of layouts of that torchcaps, if it has one."""
    case = tiny(CASES["efficient-infer-1"])
    layout = types.ModuleType("torchcaps.models.layout")
    for faster in (True, False):
        layout.is_faster_with_channels_last = lambda model, precision, faster=faster: faster
        monkeypatch.setitem(sys.modules, "torchcaps.models.layout", layout)
        monkeypatch.setattr(subjects, "keep_memory", lambda: None)
        first = build(case, CONTESTANTS["ours-by-default"]).module.network.backbone[3].weight
        assert first.is_contiguous(memory_format=torch.channels_last) is faster
    monkeypatch.setitem(sys.modules, "torchcaps.models.layout", None)
    assert subjects._fit_puts_channels_last(case) is False
