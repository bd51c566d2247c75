"""How the table is measured: parity first, then time, each in a process of its own.

check   every contestant against the opponent in float64, values and gradients of every parameter,
        with the same weights; and the FLOPs of a step. Networks on fewer images, for which layers
        take what they take for all of them: the kernels that are timed are those that are checked.
        An error is red above the tolerance, or above four times the opponent's own error in the
        precision of the case where that is more: some formulas round badly, whoever computes them.
        Red refuses the timing.
clock   steps after a warm-up: wall and CPU time, the peak of resident memory over what the imports
        take (for an op: over its inputs too), the rate of a 1×1 convolution, the GEMM peak, and
        of a copy, against which stands what a step cannot but read and write. On a GPU: the
        peak of what PyTorch allocates there, and float32 without TensorFloat-32.

Rounds interleave contestants, so that a busy minute hits all of them. RLIMIT_AS guards the machine:
what does not fit is a result, "out of memory". Linux only, since memory is read from /proc.

A contestant with kernels of its own registers their FLOPs (torch.utils.flop_counter), else they are
not counted.
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cases import Case
from contestants import Contestant, absent
from contestants import environment as environment_of
from process import Settings, in_one_line

Result = dict[str, Any]
Launch = Callable[[Result, str, Settings], Result]

ENVIRONMENTS: dict[str, dict[str, str]] = {
    "default": {},
    "thp": {"THP_MEM_ALLOC_ENABLE": "1"},
}
# A child that the kernel ends has run out of memory; one that aborts says why on stderr.
KILLED = -9
RATES = ("gemm_gflops", "copy_gbs")
PROCESS = Path(__file__).parent / "process.py"


def measure(
    case: Case,
    contestants: Sequence[Contestant],
    environments: Sequence[str],
    settings: Settings,
    *,
    launch: Launch | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Result]:
    """A row for every environment and contestant that can take part."""
    launch = launch or in_a_process
    present = [each for each in contestants if absent(each, case.device) is None]
    checks = {each.name: _check(case, each, settings, launch) for each in present}
    red = [name for name, check in checks.items() if _is_red(check)]
    if red:
        why = f"not timed: parity of {', '.join(red)} is red"
        tell(f"{case.name}: {why}")
        checks = {name: {"failure": why} | check for name, check in checks.items()}
    clocks: dict[tuple[str, str], list[Result]] = {
        (environment, each.name): [] for environment in environments for each in present
    }
    for number in range(settings.rounds):
        for environment, each in [(e, c) for e in environments for c in present]:
            made = clocks[environment, each.name]
            if "failure" in checks[each.name] or (made and "failure" in made[-1]):
                continue
            task = {"task": "clock", "case": _plain(case), "contestant": _plain(each)}
            made.append(launch(task, environment, settings))
            tell(f"{case.name}, {environment}, {each.name}, round {number + 1}")
    return [
        _row(case, environment, name, checks[name], made)
        for (environment, name), made in clocks.items()
    ]


def in_a_process(task: Result, environment: str, settings: Settings) -> Result:
    """What the process answers to a task; a failure is a result."""
    chosen = {key: value for key, value in os.environ.items() if key != "THP_MEM_ALLOC_ENABLE"}
    contestant = Contestant(**task["contestant"])
    words = json.dumps(task | {"settings": dataclasses.asdict(settings)})
    try:
        done = subprocess.run(
            [sys.executable, PROCESS],
            input=words,
            env=chosen | ENVIRONMENTS[environment] | environment_of(contestant),
            capture_output=True,
            text=True,
            timeout=settings.timeout,
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"took longer than {settings.timeout:.0f} s"}
    if done.returncode == 0:
        answer: Result = json.loads(done.stdout.splitlines()[-1])
        return answer
    if done.returncode == KILLED:
        return {"failure": "out of memory"}
    return {"failure": in_one_line(done.stderr.strip().splitlines()[-1:] or ["no word"])}


def _check(case: Case, contestant: Contestant, settings: Settings, launch: Launch) -> Result:
    if not settings.checked:
        return {}
    task = {"task": "check", "case": _plain(case), "contestant": _plain(contestant)}
    return launch(task, "default", settings)


def _is_red(check: Result) -> bool:
    return check.get("parity", {}).get("green") is False


def _row(case: Case, environment: str, name: str, check: Result, clocks: list[Result]) -> Result:
    row: Result = {
        "case": case.name,
        "environment": environment,
        "contestant": name,
        "dtype": case.dtype,
        "parity": check.get("parity", {"green": None}),
        "gflop": check.get("gflop"),
    }
    failures = [each["failure"] for each in (check, *clocks) if each.get("failure")]
    if failures:
        return row | {"failure": failures[0]}
    wall = [ms for each in clocks for ms in each["ms"]]
    cpu = [ms for each in clocks for ms in each["cpu_ms"]]
    low, middle, high = _quartiles(wall)
    return row | {
        "ms": middle,
        "iqr_ms": [low, high],
        "cpu_ms": statistics.median(cpu),
        "samples_ms": wall,
        "peak_mb": max(each["peak_mb"] for each in clocks),
        **{rate: max(each[rate] for each in clocks) for rate in RATES if rate in clocks[0]},
        "least_mb": clocks[0]["least_mb"],
        "load": [each["load"] for each in clocks],
    }


def of_peak(rows: list[Result]) -> list[Result]:
    """The rows with their rates as shares of the best 1×1 convolution that the run saw in the same
    precision, and of its best copy."""
    best: dict[str, float] = {}
    timed = [row for row in rows if "ms" in row]
    for row in timed:
        best[row["dtype"]] = max(best.get(row["dtype"], 0.0), row["gemm_gflops"])
    copy = max((row["copy_gbs"] for row in timed), default=0.0)
    made = []
    for row in rows:
        if "ms" in row:
            rate, bandwidth = row["gflop"] / row["ms"] * 1e3, row["least_mb"] / row["ms"]
            row = row | {
                "percent_of_peak": 100 * rate / best[row["dtype"]],
                "percent_of_bandwidth": 100 * bandwidth / copy,
            }
        made.append(row)
    return made


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def _plain(case: Case | Contestant) -> Result:
    return dataclasses.asdict(case)


def table(rows: list[Result]) -> str:
    """What is printed: a line for every row."""
    heads = (
        "case",
        "env",
        "contestant",
        "ms",
        "IQR",
        "CPU ms",
        "MB",
        "GFLOP",
        "% peak",
        "% copy",
        "faster",
    )
    textbook = {
        (row["case"], row["environment"]): row.get("ms")
        for row in rows
        if row["contestant"] == "textbook"
    }
    lines = [heads]
    for row in rows:
        start = (row["case"], row["environment"], row["contestant"])
        if "ms" not in row:
            lines.append((*start, row["failure"]))
            continue
        against = textbook.get(start[:2])
        low, high = row["iqr_ms"]
        lines.append(
            (
                *start,
                f"{row['ms']:.1f}",
                f"{low:.1f}–{high:.1f}",
                f"{row['cpu_ms']:.1f}",
                f"{row['peak_mb']:.0f}",
                f"{row['gflop']:.3g}",
                f"{row['percent_of_peak']:.2g}",
                f"{row['percent_of_bandwidth']:.2g}",
                f"{against / row['ms']:.2f}×" if against else "–",
            )
        )
    full = [line for line in lines if len(line) == len(heads)]
    widths = [max(len(line[column]) for line in full) for column in range(len(heads))]
    for column in range(3):
        widths[column] = max(len(line[column]) for line in lines)
    return "\n".join(
        "  ".join(
            word.ljust(width) if column < 3 else word.rjust(width)
            for column, (word, width) in enumerate(zip(line, widths, strict=False))
        ).rstrip()
        for line in lines
    )
