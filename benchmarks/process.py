"""The process of one contestant: a task as JSON on stdin, its answer as a line of JSON."""

import dataclasses
import importlib
import json
import os
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from cases import Case
from contestants import Contestant
from subjects import Subject, book_names, build, take, ways
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import torchcaps

Result = dict[str, Any]

NO_MEMORY = ("can't allocate memory", "Cannot allocate memory", "bad_alloc", "out of memory")
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
    checked: bool = True  # whether parity is found before any time is taken


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
    verdict: Result = {"green": True}
    for kind, tolerance in (("values", settings.values), ("gradients", settings.gradients)):
        allowed = {name: max(tolerance, 4 * rounding[kind][name]) for name in found[kind]}
        if not allowed:
            continue
        worst = max(allowed, key=lambda name: found[kind][name] / allowed[name])
        verdict[kind] = {"of": worst, "error": found[kind][worst], "allowed": allowed[worst]}
        verdict["green"] &= found[kind][worst] <= allowed[worst]
    return verdict


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
    """Count the FLOPs of a step on two images, for they grow with the batch and nothing else. A
    backward pass takes twice its forward pass where no counter sees it."""
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
    clocked: Result = {"ms": wall, "cpu_ms": cpu, "peak_mb": peak, "load": load}
    if settings.rates:
        clocked |= {"gemm_gflops": gemm_gflops(case), "copy_gbs": copy_gbs(case)}
    return clocked | {"least_mb": _least_mb(subject)}


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


def in_one_line(lines: list[str]) -> str:
    text = " ".join(lines)
    return "out of memory" if any(word in text for word in NO_MEMORY) else text


def main() -> None:
    task = json.load(sys.stdin)
    sources = task["contestant"].get("sources")
    assert not sources or Path(torchcaps.__file__).is_relative_to(sources), "another torchcaps"
    settings = Settings(**task["settings"])
    case = Case(**task["case"] | {"image": tuple(task["case"]["image"])})
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
        answer = {"failure": in_one_line([f"{type(error).__name__}:", *words.splitlines()])}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
