"""One image at a time: ours beside a textbook, both as they are and under torch.compile.

python benchmarks/one_image.py          # some minutes a network, most of them to compile
python benchmarks/one_image.py --cases efficient-infer-1 --rounds 5

In one process and by one thread, under `torch.inference_mode()`. The four take turns, some calls
each, so that a busy moment meets all of them; a ratio is that of one round. Written are medians
over all rounds, with quartiles: milliseconds of processor time a call, and how many times the
textbook takes ours, `eager` and `compiled`.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from cases import CASES
from contestants import CONTESTANTS
from record import write_record
from subjects import build

RECORD = Path(__file__).parent / "records" / "one_image.json"
NETWORKS = ("capsnet", "deepcaps", "efficient", "em", "gamma", "inverted-simple", "inverted-resnet")
WHAT = (
    "one image under inference_mode, by one thread: milliseconds of processor time a call, and how "
    "many times ours the textbook takes in the same round; quartiles of all rounds"
)
WHO = {"textbook": "textbook", "ours": "ours-native"}
# Processor time of a turn.
TURN = 0.02


def timed(call: Callable[[], Any], count: int) -> float:
    """Milliseconds of processor time a call."""
    began = time.process_time()
    for _ in range(count):
        call()
    return 1e3 * (time.process_time() - began) / count


def quartiles(values: list[float]) -> list[float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return [round(value, 3) for value in (low, middle, high)]


def measured(name: str, rounds: int, *, compiles: bool) -> dict[str, Any]:
    calls: dict[str, Callable[[], Any]] = {}
    seconds: dict[str, float] = {}
    for who, contestant in WHO.items():
        subject = build(CASES[name], CONTESTANTS[contestant])
        module, image = subject.module.eval(), subject.image
        calls[f"{who}, eager"] = lambda module=module, image=image: module(image)
        if compiles:
            run, began = torch.compile(module), time.perf_counter()
            with torch.inference_mode():
                run(image)
            seconds[who] = round(time.perf_counter() - began, 1)
            calls[f"{who}, compiled"] = lambda run=run, image=image: run(image)
    found: dict[str, list[float]] = {way: [] for way in calls}
    with torch.inference_mode():
        counts = {}
        for way, call in calls.items():
            timed(call, 3)
            counts[way] = max(1, round(1e3 * TURN / timed(call, 3)))
        for number in range(rounds):
            # Each is first in its turn.
            order = [*calls][number % len(calls) :] + [*calls][: number % len(calls)]
            for way in order:
                found[way].append(timed(calls[way], counts[way]))
    times = {
        way: [a / b for a, b in zip(found[f"textbook, {way}"], found[f"ours, {way}"], strict=True)]
        for way in ("eager", "compiled")[: 1 + compiles]
    }
    return {
        "case": name,
        "times": {way: quartiles(each) for way, each in times.items()},
        "ms": {way: quartiles(each) for way, each in found.items()},
        "compiling_seconds": seconds,
        "load": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", nargs="+", default=[f"{name}-infer-1" for name in NETWORKS])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--eager", action="store_true", help="nothing is compiled")
    parser.add_argument("--out", type=Path, default=RECORD)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in given.cases:
        rows.append(measured(name, given.rounds, compiles=not given.eager))
        torch.compiler.reset()
        row = rows[-1]
        print(f"{name:24}", *(f"{way} {each}" for way, each in row["times"].items()), flush=True)
        write_record(given.out, WHAT, rounds=given.rounds, rows=rows)


if __name__ == "__main__":
    main()
