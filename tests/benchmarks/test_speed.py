"""The opponents compute what torchcaps computes, and no time is taken of what does not."""

import dataclasses
import math
from pathlib import Path

import process
import pytest
import subjects
import torch
from cases import CASES, tiny
from contestants import CONTESTANTS
from harness import Settings, measure
from process import errors, judge
from subjects import Subject, build

from torchcaps.layers import convolution
from torchcaps.ops import native

OURS, TEXTBOOK = CONTESTANTS["ours-plain"], CONTESTANTS["textbook"]
# Every opponent once, and in evaluation where that is another computation.
EXACT = [
    CASES[name]
    for name in (
        "dynamic-detach",
        "dynamic-full",
        "capsnet-train-128",
        "rem_dr-train-128",
        "inverted-simple-train-32",
        "inverted-resnet-train-32",
        "em-train-128",
        "em-all-train-128",
        "gamma-train-128",
        "gamma-infer-1",
        "deepcaps-train-128",
        "efficient-train-128",
        "efficient-infer-1",
    )
]


def in_float64(case):
    case = process._small(tiny(case))
    subject = build(case, OURS)
    subject.module.double()
    for name in vars(subject).keys() & {"image", "upstream"}:
        setattr(subject, name, getattr(subject, name).double())
    return subject


@pytest.mark.parametrize("case", EXACT, ids=lambda case: case.name)
def test_an_opponent_computes_what_torchcaps_computes(case):
    found = errors(in_float64(case))
    assert max(found["values"].values()) <= 1e-8
    if case.task == "infer":
        assert found["gradients"] == {}
    else:
        assert max(found["gradients"].values()) <= 1e-8


def test_dead_iterations_change_nothing():
    """The opponent does all iterations in all layers, torchcaps those that reach the scores."""
    case = CASES["inverted-simple-train-32"]
    deep = dataclasses.replace(case, options={"iterations": 4}, opponent={"iterations": 4})
    found = errors(in_float64(deep))
    assert max(found["values"].values()) <= 1e-8
    assert max(found["gradients"].values()) <= 1e-8


def test_every_opponent_stands_on_torch_alone():
    folder = Path(subjects.__file__).parent / "textbook"
    books = sorted(folder.glob("*.py"))
    assert {book.stem for book in books} == set(subjects.BOOKS)
    for book in books:
        lines = book.read_text().splitlines()
        imported = {line.split()[1] for line in lines if line.startswith(("import ", "from "))}
        assert imported <= {"math", "torch"}, book.name


def judged(**planted):
    """What is said of our dynamic routing with some of its options changed."""
    case = process._small(tiny(CASES["dynamic-full"]))
    rounding = errors(Subject.of_opponent(build(case, OURS)))
    subject = build(case, OURS)
    for name, value in planted.items():
        setattr(subject.module.layer.routing, name, value)
    return judge(errors(subject), rounding, Settings())


def test_a_right_contestant_is_green():
    assert judged()["green"] is True


def test_a_wrong_contestant_is_red():
    parity = judged(iterations=2)
    assert parity["green"] is False
    assert parity["values"]["error"] > 1e-3


def test_a_wrong_gradient_alone_is_red():
    """A gradient that stops where it should not leaves the values as they are."""
    parity = judged(detach="votes")
    assert parity["green"] is False
    assert parity["values"]["error"] <= parity["values"]["allowed"]
    assert parity["gradients"]["error"] > 100 * parity["gradients"]["allowed"]


@pytest.mark.skipif(not native.available(), reason="no C++ compiler: nothing native to check")
def test_a_kernel_that_is_timed_is_checked(monkeypatch):
    """A gradient that is wrong in the native kernel alone is red."""
    case = dataclasses.replace(CASES["dynamic-full"], batch=32)
    case = dataclasses.replace(case, size=case.size | {"n_in": 450})
    taken = ["layer.routing"]
    right = process.check(case, CONTESTANTS["ours-native"], Settings())["parity"]
    assert right["green"] is True
    assert right["fast"] == taken
    run = native.dynamic.run

    def wrong(kernel, job, tensors, *arguments):
        run(kernel, job, tensors, *arguments)
        if tensors.get("of_weight") is not None:
            tensors["of_weight"].mul_(1.001)

    monkeypatch.setattr(native.dynamic, "run", wrong)
    parity = process.check(case, CONTESTANTS["ours-native"], Settings())["parity"]
    assert parity["green"] is False
    assert parity["gradients"]["of"] == "weight"


@pytest.mark.slow
def test_fewer_images_are_convolved_as_all_are(monkeypatch):
    """Large kernels of many images go through Fourier space, of a few not by themselves."""
    case = dataclasses.replace(CASES["capsnet-train-128"], batch=64)
    projection = "network.primary.projection"
    assert subjects.ways(case, OURS)[projection] is False
    parity = process.check(case, CONTESTANTS["ours-fused"], Settings())["parity"]
    assert parity["green"] is True
    assert projection in parity["fast"]
    convolve = convolution.fourier_convolution

    def wrong(*given, **how):
        return 1.001 * convolve(*given, **how)

    monkeypatch.setattr(convolution, "fourier_convolution", wrong)
    few = dataclasses.replace(case, batch=2)
    assert process.check(few, CONTESTANTS["ours-fused"], Settings())["parity"]["green"] is True
    parity = process.check(case, CONTESTANTS["ours-fused"], Settings())["parity"]
    assert parity["green"] is False


def test_an_opponent_is_not_run_to_be_asked():
    assert subjects.ways(CASES["dynamic-heavy-full"], TEXTBOOK) == {}


def test_an_error_may_be_four_times_the_rounding_of_the_formula():
    def parity(error, rounding):
        return judge(
            {"values": {"output 0": error}, "gradients": {"w": 0.0}},
            {"values": {"output 0": rounding}, "gradients": {"w": 0.0}},
            Settings(),
        )

    assert parity(1.9e-6, 0.0)["green"] is True
    assert parity(2.1e-6, 0.0)["green"] is False
    assert parity(3.9e-5, 1e-5)["green"] is True
    assert parity(4.1e-5, 1e-5)["green"] is False


def test_nan_is_red():
    nan, one = torch.tensor([math.nan]), torch.ones(1, dtype=torch.float64)
    assert process._error(nan, one, one.max()) == 1e30


def test_red_parity_refuses_the_timing():
    asked, said = [], []

    def launch(task, environment, settings):
        asked.append(task["task"])
        return {"parity": {"green": task["contestant"]["name"] != "ours-plain"}, "gflop": 2.0}

    rows = measure(
        CASES["dynamic-full"],
        [TEXTBOOK, OURS],
        ["default"],
        Settings(),
        launch=launch,
        tell=said.append,
    )
    assert set(asked) == {"check"}
    assert said == ["dynamic-full: not timed: parity of ours-plain is red"]
    for row in rows:
        assert row["failure"] == "not timed: parity of ours-plain is red"
        assert "ms" not in row
    assert [row["parity"]["green"] for row in rows] == [True, False]
