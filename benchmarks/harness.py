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
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from cases import Case, Contestant, Subject, absent, book_names, build, take, ways
from cases import environment as environment_of
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

__all__ = ["Settings", "errors", "judge", "measure", "memory_mb", "of_peak", "table"]

Result = dict[str, Any]
Launch = Callable[[Result, str, "Settings"], Result]

ENVIRONMENTS: dict[str, dict[str, str]] = {
    "default": {},
    "thp": {"THP_MEM_ALLOC_ENABLE": "1"},
}
NO_MEMORY = ("can't allocate memory", "Cannot allocate memory", "bad_alloc", "out of memory")
# A child that the kernel ends has run out of memory; one that aborts says why on stderr.
KILLED = -9
# Among the maps of more images one number or another crosses a ReLU's kink by rounding, as it does
# for the opponent, whose gradient is another one then. Ops have no kinks: all samples are checked.
FEW_IMAGES = 2


@dataclass(frozen=True)
class Settings:
    rounds: int = 2
    seconds: float = 5.0  # of timed steps, in one process; never fewer than two steps
    values: float = 2e-6  # the largest error of an output, relative to the largest output
    gradients: float = 2e-5  # the same of each parameter's gradient
    guard_gb: float = 0.8 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    timeout: float = 3600.0
    rates: bool = True  # whether the machine's own rates are measured after the steps


# In the parent


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
    """What `main` below answers to a task; a failure is a result."""
    chosen = {key: value for key, value in os.environ.items() if key != "THP_MEM_ALLOC_ENABLE"}
    contestant = Contestant(**task["contestant"])
    told = json.dumps(task | {"settings": dataclasses.asdict(settings)})
    try:
        done = subprocess.run(
            [sys.executable, __file__],
            input=told,
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
    return {"failure": _named(done.stderr.strip().splitlines()[-1:] or ["no word"])}


def _check(case: Case, contestant: Contestant, settings: Settings, launch: Launch) -> Result:
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
        "gemm_gflops": max(each["gemm_gflops"] for each in clocks),
        "copy_gbs": max(each["copy_gbs"] for each in clocks),
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


# In the child


def check(case: Case, contestant: Contestant, settings: Settings) -> Result:
    """Errors against the opponent in float64, and the FLOPs of a step."""
    taken = ways(case, contestant)
    subject = build(_small(case), contestant)
    take(subject, taken)
    found = errors(subject)
    rounding = errors(Subject.of_opponent(subject))
    parity = judge(found, rounding, settings)
    # Of layers that have a choice, those that took what pays for many images.
    parity["fast"] = [name for name, is_taken in taken.items() if is_taken]
    return {"parity": parity, "gflop": _gflop(case, contestant)}


def errors(subject: Subject) -> dict[str, dict[str, float]]:
    """The errors of all outputs and of all gradients, each relative to the largest number of its
    tensor. A gradient that is zero in exact numbers counts by the largest of all."""
    reference = Subject.of_opponent(subject, exact=True)
    pairs = list(zip(subject.backward(), reference.backward(), strict=True))
    values = {
        f"output {number}": _error(found, right, right.abs().max())
        for number, (found, right) in enumerate(pairs)
        if found is not None and right is not None
    }
    if subject.case.task == "infer":
        return {"values": values, "gradients": {}}
    found = {name: tensor.grad for name, tensor in book_names(subject.module).items()}
    expected = {name: parameter.grad for name, parameter in reference.module.named_parameters()}
    most = torch.stack([right.abs().max() for right in expected.values() if right is not None])
    gradients = {}
    for name, right in expected.items():
        ours = found[name]
        assert right is not None
        assert ours is not None
        own = right.abs().max()
        gradients[name] = _error(ours, right, own if own > 1e-10 * most.max() else most.max())
    return {"values": values, "gradients": gradients}


def judge(
    found: dict[str, dict[str, float]], rounding: dict[str, dict[str, float]], settings: Settings
) -> Result:
    """The worst errors of either kind, what was allowed there, and whether all is green."""
    told: Result = {"green": True}
    for kind, tolerance in (("values", settings.values), ("gradients", settings.gradients)):
        allowed = {name: max(tolerance, 4 * rounding[kind][name]) for name in found[kind]}
        if not allowed:
            continue
        worst = max(allowed, key=lambda name: found[kind][name] / allowed[name])
        told[kind] = {"of": worst, "error": found[kind][worst], "allowed": allowed[worst]}
        told["green"] &= found[kind][worst] <= allowed[worst]
    return told


def _error(found: Tensor, right: Tensor, scale: Tensor) -> float:
    worst = float(((found.double() - right).abs().max() / scale).detach())
    # Written so that NaN does not pass for a small number, nor infinity for JSON.
    return worst if worst < 1e30 else 1e30


def _small(case: Case) -> Case:
    """Sizes at which the opponent in float64 is no burden."""
    if case.task != "op":
        return dataclasses.replace(case, batch=min(case.batch, FEW_IMAGES))
    n_in = case.size["n_in"] if case.size["n_out"] < 100 else min(case.size["n_in"], 40)
    return dataclasses.replace(case, size=case.size | {"n_in": n_in})


def _gflop(case: Case, contestant: Contestant) -> float:
    """Of a step: counted on two images, for FLOPs grow with the batch and nothing else. A backward
    pass takes twice its forward pass where no counter sees it."""
    batch = min(case.batch, 2)
    eager = dataclasses.replace(contestant, compiled=False)
    subject = build(dataclasses.replace(case, batch=batch), eager)
    with FlopCounterMode(display=False) as counter:
        subject.step()
    passes = 1 if case.task == "infer" else 3
    each = counter.get_total_flops() / batch + case.elementwise * passes
    return each * case.batch / 1e9


def clock(case: Case, contestant: Contestant, settings: Settings) -> Result:
    after_imports = _held_mb(case)
    subject = build(case, contestant)
    before = _held_mb(case) if case.task == "op" else after_imports
    load = os.getloadavg()[0]
    for _ in range(2 if contestant.compiled else 1):
        subject.step()
    _wait(case)
    wall: list[float] = []
    cpu: list[float] = []
    while len(wall) < 2 or sum(wall) < 1e3 * settings.seconds:
        started, worked = time.perf_counter(), time.process_time()
        subject.step()
        _wait(case)
        cpu.append(1e3 * (time.process_time() - worked))
        wall.append(1e3 * (time.perf_counter() - started))
    peak = _held_mb(case, at_most=True) - before
    told: Result = {"ms": wall, "cpu_ms": cpu, "peak_mb": peak, "load": load}
    if settings.rates:
        told |= {"gemm_gflops": gemm_gflops(case), "copy_gbs": copy_gbs(case)}
    return told | {"least_mb": _least_mb(subject)}


def _wait(case: Case) -> None:
    """For what was only started."""
    if case.device == "cuda":
        torch.cuda.synchronize()


def _held_mb(case: Case, *, at_most: bool = False) -> float:
    if case.device == "cuda":
        held = torch.cuda.max_memory_allocated if at_most else torch.cuda.memory_allocated
        return held() / 2**20
    return memory_mb("VmHWM" if at_most else "VmRSS")


def gemm_gflops(case: Case) -> float:
    """The best rate of a 1×1 convolution: a GEMM by the library that convolutions use."""
    channels, side, batch = (512, 32, 8) if case.device == "cpu" else (2048, 32, 32)
    like = torch.zeros((), dtype=getattr(torch, case.dtype), device=case.device)
    maps = torch.randn(batch, channels, side, side).to(like)
    weight = torch.randn(channels, channels, 1, 1).to(like)
    work = 2 * batch * side**2 * channels**2
    rates = []
    with torch.no_grad():
        for _ in range(10):
            started = time.perf_counter()
            torch.nn.functional.conv2d(maps, weight)
            _wait(case)
            rates.append(work / (time.perf_counter() - started) / 1e9)
    return max(rates)


def copy_gbs(case: Case) -> float:
    """The best rate of a copy that fits into no cache, reads and writes counted."""
    source = torch.ones(1 << 26 if case.device == "cpu" else 1 << 29, device=case.device)
    target = torch.empty_like(source)
    rates = []
    for _ in range(5):
        _wait(case)
        started = time.perf_counter()
        target.copy_(source)
        _wait(case)
        rates.append(2 * source.nbytes / (time.perf_counter() - started) / 1e9)
    return max(rates)


def _least_mb(subject: Subject) -> float:
    """What no step can do without: parameters read in each pass, their gradients, the images."""
    passes = 1 if subject.case.task == "infer" else 3
    image = getattr(subject, "image", None)
    least = passes * sum(parameter.nbytes for parameter in subject.module.parameters())
    return (least + (0 if image is None else image.nbytes)) / 1e6


def memory_mb(entry: str) -> float:
    """VmRSS or its peak, VmHWM. ru_maxrss would not do: a child inherits it from its parent."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{entry}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {entry}")


def _named(lines: list[str]) -> str:
    text = " ".join(lines)
    return "out of memory" if any(word in text for word in NO_MEMORY) else text


def main() -> None:
    task = json.load(sys.stdin)
    settings = Settings(**task["settings"])
    told = task["case"]
    case = Case(**told | {"image": tuple(told["image"])})
    contestant = Contestant(**task["contestant"])
    if case.device == "cuda":
        torch.backends.cudnn.allow_tf32 = False
    else:  # a GPU's driver reserves more addresses than there is memory
        limit = int(settings.guard_gb * 1e9)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    if case.task == "train" or contestant.compiled:
        # Optimisers load it at their first step; it is an import, not what a step needs.
        importlib.import_module("torch._dynamo")
    try:
        if task["task"] == "check":
            answer = check(case, contestant, settings)
        else:
            answer = clock(case, contestant, settings)
    except (MemoryError, RuntimeError) as error:
        words = "out of memory" if isinstance(error, MemoryError) else str(error).strip()
        answer = {"failure": _named([f"{type(error).__name__}:", *words.splitlines()])}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
