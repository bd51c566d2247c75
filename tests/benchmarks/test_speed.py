"""The opponents compute what torchcaps computes, and no time is taken of what does not."""

import dataclasses
import json
import math
import sys
from pathlib import Path

import growth
import harness
import process
import pytest
import speed
import subjects
import torch
from cases import CASES, tiny
from contestants import CONTESTANTS, absent
from harness import Settings, measure, of_peak, table
from process import errors, judge
from subjects import Subject, build

from torchcaps.layers.convolution import large
from torchcaps.ops import native

OURS, TEXTBOOK = CONTESTANTS["ours-plain"], CONTESTANTS["textbook"]
# Of a backend that does not exist.
NOBODY = dataclasses.replace(OURS, name="nobody", backend="quantum")
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
SLOW_STEP = {"ms": [30.0, 10.0, 20.0], "cpu_ms": [8.0, 9.0, 7.0], "peak_mb": 5.0, "load": 0.5}


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

    def wrong(kernel, kind, numbers, tensors):
        run(kernel, kind, numbers, tensors)
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
    convolve = large.fourier_convolution

    def wrong(*given, **how):
        return 1.001 * convolve(*given, **how)

    monkeypatch.setattr(large, "fourier_convolution", wrong)
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


def launcher(asked, *, red=()):
    def launch(task, environment, settings):
        asked.append((task["task"], environment, task["contestant"]["name"]))
        if task["task"] == "check":
            green = task["contestant"]["name"] not in red
            return {"parity": {"green": green}, "gflop": 2.0}
        return SLOW_STEP | {"gemm_gflops": 400.0, "copy_gbs": 20.0, "least_mb": 40.0}

    return launch


def test_red_parity_refuses_the_timing():
    asked, said = [], []
    rows = measure(
        CASES["dynamic-full"],
        [TEXTBOOK, OURS],
        ["default"],
        Settings(),
        launch=launcher(asked, red=("ours-plain",)),
        tell=said.append,
    )
    assert {task for task, _, _ in asked} == {"check"}
    assert said == ["dynamic-full: not timed: parity of ours-plain is red"]
    for row in rows:
        assert row["failure"] == "not timed: parity of ours-plain is red"
        assert "ms" not in row
    assert [row["parity"]["green"] for row in rows] == [True, False]


def test_rounds_interleave_and_quartiles_come_of_all_of_them():
    asked = []
    rows = measure(
        CASES["dynamic-full"],
        [TEXTBOOK, OURS, NOBODY],
        ["default", "thp"],
        Settings(rounds=2),
        launch=launcher(asked),
    )
    clocks = [(env, name) for task, env, name in asked if task == "clock"]
    once = [(env, name) for env in ("default", "thp") for name in ("textbook", "ours-plain")]
    assert clocks == [*once, *once]
    row = of_peak(rows)[0]
    assert (row["ms"], row["iqr_ms"], row["cpu_ms"]) == (20.0, [12.5, 27.5], 8.0)
    # 2 GFLOP in 20 ms are 100 GFLOP/s, of 400.
    assert row["percent_of_peak"] == 25.0
    # 40 MB in 20 ms are 2 GB/s, of 20.
    assert row["percent_of_bandwidth"] == 10.0
    assert "12.5–27.5" in table([row])
    assert table([row]).splitlines()[1].endswith("1.00×")


def test_a_failure_is_a_result_and_is_not_tried_again():
    asked = []

    def launch(task, environment, settings):
        asked.append(task["task"])
        if task["task"] == "check":
            return {"parity": {"green": True}, "gflop": 2.0}
        return {"failure": "out of memory"}

    settings = Settings(rounds=3)
    rows = measure(CASES["dynamic-full"], [TEXTBOOK], ["default"], settings, launch=launch)
    assert asked == ["check", "clock"]
    assert rows[0]["failure"] == "out of memory"
    assert table(rows).splitlines()[1].split("  ")[-1] == "out of memory"


def test_channels_are_last_where_a_contestant_says_so():
    case = tiny(CASES["efficient-train-128"])
    for name, expected in (("ours-native", False), ("ours-channels-last", True)):
        convolution = build(case, CONTESTANTS[name]).module.network.backbone[3]
        assert convolution.weight.is_contiguous(memory_format=torch.channels_last) is expected
        assert CONTESTANTS[name].channels_last is expected


def test_a_backend_that_does_not_exist_is_absent():
    assert absent(TEXTBOOK) is None
    assert absent(OURS) is None
    assert absent(NOBODY) == "this torchcaps has no backend 'quantum'"


# Two processes for each of each, which import torch and find the GEMM peak: seconds.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("cases", "contestants"),
    [
        (["efficient-train-128"], ["ours-native"]),
        (["dynamic-detach", "efficient-train-128"], ["ours-plain", "ours-native"]),
    ],
    ids=" ".join,
)
def test_a_tiny_run_writes_a_whole_record(cases, contestants, tmp_path, monkeypatch):
    """From end to end."""
    out = tmp_path / "speed.json"
    words = ["--tiny", "--rounds", "1", "--seconds", "0.01", "--env", "thp", "--out", str(out)]
    words += ["--cases", *cases, "--contestants", *contestants]
    monkeypatch.setattr(sys, "argv", ["speed.py", *words])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    speed.main()
    recorded = json.loads(out.read_text())
    assert set(recorded) == {*("what", "tiny", "date", "environment", "settings", "absent", "rows")}
    assert recorded["environment"]["processor"].endswith(torch.backends.cpu.get_cpu_capability())
    assert recorded["tiny"] is True
    assert {"commit", "torch", "python", "machine", "command"} <= set(recorded["environment"])
    assert recorded["settings"]["values"] == 2e-6
    assert {(row["case"], row["contestant"]) for row in recorded["rows"]} == {
        (case, contestant) for case in cases for contestant in contestants
    }
    for row in recorded["rows"]:
        assert row["parity"]["green"] is True
        assert row["parity"]["gradients"]["error"] <= row["parity"]["gradients"]["allowed"]
        low, high = row["iqr_ms"]
        assert 0 < low <= row["ms"] <= high
        assert len(row["samples_ms"]) >= 2
        assert 0 < row["percent_of_peak"] < 100
        assert 0 < row["percent_of_bandwidth"] < 100
        assert row["environment"] == "thp"


def test_a_step_reads_parameters_twice_and_writes_their_gradients():
    case = tiny(CASES["dynamic-full"])
    i, j, o, d = (case.size[name] for name in ("n_in", "n_out", "d_out", "d_in"))
    numbers = case.batch * i * d + i * j * o * d
    assert process._least_mb(build(case, OURS)) == pytest.approx(3 * 4 * numbers / 1e6)


def test_flops_of_a_routing_are_counted():
    """Votes 2·i·j·o·d, then three sums and two agreements of 2·i·j·o; full gradients of them all
    but that of the first sum, whose couplings are constant."""
    case = tiny(CASES["dynamic-full"])
    i, j, o, d = (case.size[name] for name in ("n_in", "n_out", "d_out", "d_in"))
    votes, pass_over = 2 * i * j * o * d, 2 * i * j * o
    forward = votes + 5 * pass_over
    backward = 2 * votes + 2 * 5 * pass_over - pass_over
    assert process._gflop(case, TEXTBOOK) == pytest.approx(
        case.batch * (forward + backward) / 1e9, rel=1e-12
    )


@pytest.mark.slow
def test_memory_beyond_the_guard_is_a_result():
    case = CASES["dynamic-heavy-full"]
    # Votes of 20 GB, of small children and small matrices.
    case = dataclasses.replace(case, batch=4096, size=case.size | {"n_in": 400})
    task = {
        "task": "clock",
        "case": dataclasses.asdict(case),
        "contestant": dataclasses.asdict(TEXTBOOK),
    }
    answer = harness.in_a_process(task, "default", Settings(guard_gb=8.0))
    assert answer == {"failure": "out of memory"}


def test_growth_fits_a_straight_line_through_logarithms():
    assert growth.exponent([1, 2, 4], [3, 12, 48]) == pytest.approx(2)
    assert growth.case_at("i", 288).size["n_in"] == 288
    assert growth.case_at("resolution", 48).image == (3, 48, 48)
