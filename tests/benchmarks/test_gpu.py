"""A run on a GPU keeps to its budget, goes on where it was, and loses no number to an error."""

import argparse
import importlib.metadata
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from functools import cache

import gpu_pack
import gpu_steps
import pytest
import throughput
import torch

import gpu
import torchcaps
from torchcaps.study.system import Study, only_those
from torchcaps_claims import study_of


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def records(tmp_path):
    return gpu.Records(tmp_path / "out" / "gpu.jsonl", lambda: {"commit": "abc"})


def part(clock, records, name, most, *, takes=0.0, least=1.0, steps=("a", "b")):
    """Its steps share what it takes; `shares` collects what it is given."""

    def run(left, seconds):
        shares.append((name, left, seconds))
        for step in left:
            clock.now += takes / len(left)
            records.add(step, number=1)

    shares = []
    return gpu.Part(name, tuple(f"{name}/{x}" for x in steps), most, least, run), shares


def test_parts_run_in_turn_within_their_shares_and_end_before_the_budget(records):
    clock = Clock()
    first, of_first = part(clock, records, "first", 100, takes=90)
    second, of_second = part(clock, records, "second", 1000, takes=410)
    third, of_third = part(clock, records, "third", 50, least=11)
    left = gpu.go([first, second, third], records, 540, clock)
    assert of_first == [("first", ["first/a", "first/b"], 100)]
    # 540 - 20 - 10 for saving - 90, then ten seconds, which the third does not begin with.
    assert of_second == [("second", ["second/a", "second/b"], 420)]
    assert of_third == []
    assert left == ["third/a", "third/b"]


def test_shares_of_a_small_budget_are_in_proportion(records):
    clock = Clock()
    half, shares = part(clock, records, "half", 100)
    gpu.go([half], records, 255 + 30, clock)
    assert shares[0][2] == 50


def test_what_had_too_little_time_gets_what_the_others_left(records):
    clock = Clock()
    slow, shares = part(clock, records, "slow", 10, takes=0)
    short = slow._replace(run=lambda left, seconds: seconds > 100 and slow.run(left, seconds))
    other, _ = part(clock, records, "other", 100, takes=60)
    assert gpu.go([short, other], records, 540, clock) == []
    assert shares == [("slow", ["slow/a", "slow/b"], 450)]


def test_what_has_a_number_is_not_run_again_and_errors_come_last(records):
    clock = Clock()
    records.add("some/a", number=1)
    records.add("some/b", error="broke")
    some, shares = part(clock, records, "some", 100, steps=("a", "b", "c"))
    assert gpu.go([some], records, 540, clock) == []
    assert shares == [("some", ["some/c", "some/b"], 100)]
    assert gpu.go([some], records, 540, clock) == []
    assert len(shares) == 1


def test_an_error_of_a_part_is_written_down_and_the_rest_goes_on(records):
    clock = Clock()
    bad, _ = part(clock, records, "bad", 100, steps=("a",))
    bad = bad._replace(run=lambda left, seconds: 1 / 0)
    good, shares = part(clock, records, "good", 100)
    assert gpu.go([bad, good], records, 540, clock) == ["bad/a"]
    assert len(shares) == 1
    rows = [row for row in records.rows() if "error" in row]
    assert len(rows) == 2  # there was time for another try
    assert (rows[0]["step"], rows[0]["error"]) == ("bad", "ZeroDivisionError: division by zero")
    assert rows[0]["environment"] == {"commit": "abc"}


def test_a_line_that_was_torn_costs_itself_alone(records):
    records.add("a", number=1)
    with records.path.open("a") as file:
        file.write('{"step": "b", "num')
    records.add("c", number=3)
    assert [row["step"] for row in records.rows()] == ["a", "c"]


@pytest.fixture
def work(records, tmp_path):
    given = argparse.Namespace(device="cpu", tiny=True, scratch=tmp_path, out=records.path.parent)
    given.out.mkdir()
    return gpu.Work(given, records, tmp_path)


def test_another_process_takes_the_steps_behind_one_that_died(work, tmp_path, monkeypatch):
    script = tmp_path / "steps.py"
    script.write_text(
        "import json, os, sys\n"
        "for step in sys.argv[4:]:\n"
        "    if step == 'dies':\n"
        "        print('out of luck', flush=True)\n"
        "        os.abort()\n"
        "    row = {'step': step} | ({'error': 'no'} if step == 'fails' else {})\n"
        "    print(json.dumps(row), file=open(sys.argv[1], 'a'))\n"
        "    if step == 'fails':\n"
        "        sys.exit(3)\n"
    )
    monkeypatch.setattr(work, "tiny", False)
    monkeypatch.setattr(gpu, "STEPS", script)
    work.steps(["good", "dies", "fails", "last"], 20.0)
    rows = {row["step"]: row.get("error", "") for row in work.records.rows()}
    assert list(rows) == ["good", "dies", "fails", "last"]
    assert rows["dies"] == f"its process ended with {-signal.SIGABRT}: out of luck"
    assert (rows["good"], rows["fails"], rows["last"]) == ("", "no", "")


def test_a_step_that_does_not_end_is_stopped_with_its_children(work, tmp_path):
    child = "import time; open('{}', 'w').write('x'); time.sleep(60); open('{}', 'w')"
    begun, late = tmp_path / "begun", tmp_path / "late"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    words = [sys.executable, "-c", code.format(begun, late)]
    began = time.monotonic()
    assert work.ends(words, began + 0.5, tmp_path / "log") is None
    assert time.monotonic() - began < 5
    assert not late.exists()


def test_tests_are_counted_by_what_pytest_told_even_if_it_was_stopped():
    text = (
        "[gw0] [  1%] PASSED tests/gpu/test_a.py::test_one[a b-3] \n"
        "[gw1] [  2%] FAILED tests/gpu/test_a.py::test_two \n"
        "[gw1] [  2%] SKIPPED tests/gpu/test_a.py::test_three \n"
        "tests/ops/test_b.py::test_four[0.5] PASSED                    [ 50%]\n"
        "FAILED tests/gpu/test_a.py::test_two - AssertionError: PASSED\n"
        "1 failed, 2 passed\n"
    )
    failed = ["tests/gpu/test_a.py::test_two"]
    assert gpu.counted(text) == {"executed": 3, "passed": 2, "failed": failed}


def test_too_few_tests_and_failed_ones_are_told():
    rows = [{"step": "tests/gpu", "executed": 100, "failed": []}]
    assert gpu.verdict(rows) == "100 tests ran on the device, where at least 150 should."
    rows += [{"step": "tests/parity", "executed": 50, "failed": []}]
    assert gpu.verdict(rows) == ""
    rows += [{"step": "tests/parity", "executed": 60, "failed": ["tests/a.py::b"]}]
    assert gpu.verdict(rows) == "1 of 160 tests failed, the first: tests/a.py::b"


@pytest.mark.parametrize(
    ("device", "found", "expected"),
    [
        ("cuda", {"passed": 300, "failed": []}, True),
        ("cuda", {"passed": 299, "failed": ["tests/gpu/test_training.py::test_a"]}, False),
        ("cuda", {"passed": 300, "failed": [], "stopped": True}, False),
        ("cuda", {"error": "its process had no more time"}, False),
        ("cpu", {"passed": 300, "failed": []}, False),
    ],
)
def test_studies_train_by_graphs_once_all_tests_have_passed(work, device, found, expected):
    work.device = device
    assert not work.captures()
    work.records.add("tests/gpu", passed=1, failed=["one of an earlier call"])
    work.records.add("tests/gpu", **found)
    work.records.add("tests/parity", passed=0, failed=["another"])
    assert work.captures() == expected


def test_a_tree_without_its_repository_still_knows_its_commit_and_its_changes(tmp_path):
    tree, there = tmp_path / "tree", tmp_path / "there"
    (tree / "src").mkdir(parents=True)
    (tree / "src" / "a.py").write_text("1\n")

    def git(*words: str, at=tree, **environment: str) -> str:
        who = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER")
               for what in ("NAME", "EMAIL")}  # fmt: skip
        words = ("git", "-C", str(at), *words)
        return subprocess.check_output(words, text=True, env=os.environ | who | environment)

    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "one")):
        git(*words)
    gpu_pack.commit_alone(tree, tmp_path / "git")
    shutil.copytree(tree, there, ignore=shutil.ignore_patterns(".git"))
    only = {"at": there, "GIT_DIR": str(tmp_path / "git"), "GIT_WORK_TREE": str(there)}
    git("read-tree", "HEAD", **only)
    assert git("rev-parse", "HEAD", **only) == git("rev-parse", "HEAD")
    assert git("status", "--porcelain", "--", ".", **only) == ""
    (there / "src" / "a.py").write_text("2\n")
    assert git("status", "--porcelain", "--", ".", **only) == " M src/a.py\n"


def test_projects_that_are_not_installed_are_known_by_version_and_commands(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "distributions", lambda name: [])
    for folder in (gpu.ROOT, gpu.ROOT / "claims"):
        gpu_pack.as_if_installed(folder, tmp_path)
    monkeypatch.undo()
    found = {x.name: x for x in importlib.metadata.distributions(path=[str(tmp_path)])}
    assert found["torchcaps"].version == torchcaps.__version__
    commands = found["torchcaps-claims"].entry_points.select(group="torchcaps.study.commands")
    assert [each.load() for each in commands]


@cache
def study(what: str, table: int | None, reduced: bool, seeds: int | None) -> Study:
    return study_of(what, table, reduced=reduced, seeds=seeds, evidence="no records")


@pytest.mark.parametrize("name", gpu.QUEUE)
def test_a_study_of_the_queue_trains_something_that_its_claims_speak_of(name):
    words = iter(shlex.split(gpu.QUEUE[name]["run"]))
    what, table, reduced, seeds, only = next(words), None, False, None, []
    for word in words:
        if word == "--only":
            only.append(next(words))
        elif word == "--seeds":
            seeds = int(next(words))
        elif word == "--reduced":
            reduced = True
        else:
            table = int(word)
    systems = only_those(study(what, table, reduced, seeds), only).systems
    assert {*gpu.QUEUE[name]["claims"]} <= {claim for system in systems for claim in system.claims}
    # What is packed, and what is made out of it or of nothing.
    sets = {"mnist", "fashion-mnist", "expanded-mnist", "sign"}
    assert {system.recipe.data for system in systems} <= sets


def test_the_plan_has_every_network_and_leaves_time_for_the_queue(work):
    work.tiny = False
    assert tuple(part.name for part in work.plan()) == gpu.PARTS
    assert {*gpu.NETWORKS} == {name for name, _, _ in throughput.NETWORKS}
    # All but the queue leave it a fifth of the time, however long each takes.
    assert sum(part.most for part in work.plan()[:-1]) <= 0.8 * gpu.USUAL


def test_every_aim_is_measured_by_a_step_of_the_plan_and_named_in_the_docs(work):
    work.tiny = False
    steps = {step for part in work.plan() for step in part.steps}
    assert {*gpu.AIMS} <= steps
    page = (gpu.ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    for step, (name, aim) in gpu.AIMS.items():
        if name != "host_us":
            assert f"| `{step}` | `{name}` | {aim:,} |" in page
    rows = [{"step": "fit/capsnet", "captured_images_a_second": 36_000.5}]
    assert gpu.beside_aims(rows)[:2] == [
        "fit/mitterreiter_5x16: captured_images_a_second open, aim 55,000",
        "fit/capsnet: captured_images_a_second 36,000.5, aim 35,000",
    ]


@pytest.mark.parametrize(
    "preset", [pytest.param("mitterreiter_5x16", marks=pytest.mark.slow), "efficient_capsnet"]
)
def test_stacked_networks_have_the_gradients_of_each_alone(preset):
    step = gpu_steps.Stacked(preset, torch.device("cpu"), 2, 3)
    for model in step.models:
        model.double()
    step.weights, step.buffers = torch.func.stack_module_state(step.models)
    step.pixels = step.pixels.double()
    assert step.apart() <= 1e-11
