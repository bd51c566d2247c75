"""What a GPU is wanted for, in the order of what it is worth, within a budget of seconds.

    python benchmarks/gpu.py run --budget 540 --root data --out FOLDER   # or: make gpu
    python benchmarks/gpu.py run --device cpu --tiny --budget 120 --out FOLDER   # that it runs
    python benchmarks/gpu.py pack --root data --out build/pack    # for a machine without a network

Parts, each with a share of the budget: what the card can do; tests on it; training steps of ten
networks, eager and as a captured graph; many networks at once; compiled steps; then studies, those
first that decide most claims a second. FOLDER/gpu.jsonl gets a line as soon as a step has a number
or an error, FOLDER/evidence.zip the records of studies, to be unpacked in a clone. The same line
goes on with what is left, errors last. It ends twenty seconds before its budget; killed, it loses
the steps in flight, and networks in training go on from their states in --scratch.

The installed PyTorch is used, and the package as it lies in src/. `pack` gathers in one folder what
another machine may lack: MNIST and Fashion-MNIST, wheels, and the name of the commit. `run` finds
it in --packed.
"""

import argparse
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from gpu_pack import RARE, has, pack, unpack

ROOT = Path(__file__).resolve().parents[1]
STEPS = ROOT / "benchmarks" / "gpu_steps.py"
# It ends so long before its budget; a process that is told to end saves its states so long.
SPARE, SAVING = 20.0, 10.0
# Shares are of what is between; of less, in proportion.
USUAL = 510.0
LEAST_TESTS = 150
# Its process ends so after it has written down an error: the next step needs a process of its own.
FAILED = 3
# What the package and its tests import.
NEEDED = ("torch", "lightning", "numpy", "pydantic", "safetensors", "typer", "rich", "jinja2")
NEEDED += ("filelock", "PIL", "pytest", "hypothesis")
NETWORKS = ("mitterreiter_5x16", "capsnet", "efficient_capsnet", "gamma_capsnet", "deepcaps")
NETWORKS += ("matrix_capsnet", "tsai_inverted_simple_c10", "tsai_inverted_resnet_c10", "resnet18")
NETWORKS += ("efficient_convnet",)
# What an H200 should reach, an H100 seven tenths of it: by the step and its number.
AIMS: dict[str, tuple[str, float]] = {
    "fit/mitterreiter_5x16": ("captured_images_a_second", 55_000),
    "fit/capsnet": ("captured_images_a_second", 35_000),
    "fit/efficient_capsnet": ("captured_images_a_second", 120_000),
    "fit/gamma_capsnet": ("captured_images_a_second", 14_000),
    "fit/deepcaps": ("captured_images_a_second", 16_000),
    "fit/matrix_capsnet": ("captured_images_a_second", 2_700),
    "fit/tsai_inverted_simple_c10": ("captured_images_a_second", 3_500),
    "compiled/capsnet": ("compiled_captured_images_a_second", 60_000),
    "compiled/gamma_capsnet": ("compiled_captured_images_a_second", 32_000),
    "compiled/matrix_capsnet": ("compiled_captured_images_a_second", 6_000),
    "compiled/tsai_inverted_simple_c10": ("compiled_captured_images_a_second", 7_000),
    "many/mitterreiter_5x16": ("together_images_a_second", 250_000),
    # The most that it should take.
    **{f"networks/{name}": ("host_us", 50) for name in NETWORKS},
}
# Sixteen networks at once: as one by vmap; in turn, and in as many processes.
MANY = ("stacked", "many")
PARTS = ("ceilings", "tests", "networks", "fit", "many", "compiled", "queue")
QUEUE = tomllib.loads((ROOT / "benchmarks" / "gpu_queue.toml").read_text(encoding="utf-8"))
# Studies side by side, and the networks that each trains at once, of so many cores.
LANES, SHARE_OF_CORES = 2, 0.6
TINY = """model = "mitterreiter_grid"
data = "part-whole"
train_images = 64
epochs = 1
measure = ["accuracy"]
[options]
widths = "4"
decoder = false
[vary]
seed = [0, 1]
"""

# pytest's words for each step of the part; fewer than LEAST_TESTS in all are a failure.
TESTS = {
    "tests/gpu": "-m gpu tests/gpu",
    "tests/parity": "-k parity --dtype float32 --device {device} tests/ops",
}
TOLD = re.compile(r"(?:\[gw\d+\] \[ *\d+%\] (?P<first>[A-Z]+) )?(?P<name>tests/.*?)"
                  r"(?: (?P<last>[A-Z]+) +\[ *\d+%\])?$")  # fmt: skip


class Records:
    """The lines of FOLDER/gpu.jsonl, which child processes write too."""

    def __init__(self, path: Path, about: Callable[[], dict[str, Any]] = dict):
        self.path, self.about = path, about

    def add(self, step: str, **found: Any) -> None:
        row = {"step": step, **found, "made": datetime.now(UTC).isoformat(timespec="seconds")}
        line = json.dumps(row | {"environment": self.about()}, ensure_ascii=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            torn = file.read() not in (b"", b"\n")  # by whoever was killed while he wrote
            file.write(b"\n" * torn + line.encode() + b"\n")
        print(f"{step}: {shortly(row)}", flush=True)

    def rows(self) -> list[dict[str, Any]]:
        found = []
        for line in self.path.read_bytes().splitlines() if self.path.exists() else []:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    def left_of(self, steps: Sequence[str]) -> list[str]:
        """The steps that have no number yet, those last that had an error."""
        rows = self.rows()
        done = {row["step"] for row in rows if "error" not in row}
        failed = {row["step"] for row in rows}
        return sorted((step for step in steps if step not in done), key=failed.__contains__)


def shortly(row: dict[str, Any]) -> str:
    of_all = ("step", "made", "environment")
    return json.dumps({k: x for k, x in row.items() if k not in of_all}, ensure_ascii=False)[:300]


class Part(NamedTuple):
    """Steps that share some seconds of the budget, and without `least` are not begun."""

    name: str
    steps: tuple[str, ...]
    most: float
    least: float
    run: Callable[[list[str], float], None]


def go(
    plan: Sequence[Part], records: Records, budget: float, now: Callable[[], float]
) -> list[str]:
    """Every part in turn, within its share and the budget, and once more what is left if time is;
    returns the steps that are left then."""
    whole = budget - SPARE - SAVING
    end = now() + whole
    for part, most in [(part, part.most) for part in plan] + [(part, math.inf) for part in plan]:
        left = records.left_of(part.steps)
        share = min(most * min(1.0, whole / USUAL), end - now())
        if not left or share < part.least:
            continue
        print(f"{part.name}: {len(left)} steps in {share:.0f} s", flush=True)
        try:
            part.run(left, share)
        except Exception as error:
            records.add(part.name, error=f"{type(error).__name__}: {error}")
    return [step for part in plan for step in records.left_of(part.steps)]


class Work:
    """What the parts have in common: folders, device, and processes that are told to end."""

    def __init__(self, given: argparse.Namespace, records: Records, root: Path):
        self.given, self.records, self.root = given, records, root
        self.device, self.tiny, self.scratch = given.device, given.tiny, given.scratch
        self.log = given.out / "log.txt"

    def plan(self) -> list[Part]:
        ceilings = tuple(f"ceilings/{what}" for what in ("matmul", "copy", "launches"))
        networks = NETWORKS[:2] if self.tiny else NETWORKS
        queue = ("queue/tiny",) if self.tiny else tuple(f"queue/{name}" for name in QUEUE)
        return [
            Part("ceilings", ceilings, 25, 3, self.steps),
            Part("tests", tuple(TESTS), 120, 10, self.tests),
            Part("networks", tuple(f"networks/{x}" for x in networks), 90, 10, self.steps),
            Part("fit", tuple(f"fit/{x}" for x in networks[:7]), 50, 5, self.steps),
            Part("many", tuple(f"{x}/mitterreiter_5x16" for x in MANY), 75, 5, self.steps),
            Part("compiled", tuple(f"compiled/{x}" for x in networks), 45, 5, self.steps),
            Part("queue", queue, math.inf, 10, self.queue),
        ]

    def begin(self, words: Sequence[str | Path], log: Path) -> subprocess.Popen[bytes]:
        """In a group of its own, which ends as one."""
        with log.open("ab") as talk:
            talk.write(f"$ {shlex.join(map(str, words))}\n".encode())
            talk.flush()
            return subprocess.Popen(
                words, stdout=talk, stderr=talk, stdin=subprocess.DEVNULL, cwd=ROOT, process_group=0
            )

    def ends(self, words: Sequence[str | Path], until: float, log: Path) -> int | None:
        """What it ends with; None if it had to be stopped."""
        process = self.begin(words, log)
        try:
            return process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None
        finally:
            stop([process])

    def steps(self, left: list[str], seconds: float) -> None:
        """In a process that writes each down; if it dies another takes those behind."""
        until = time.monotonic() + seconds
        words = [sys.executable, STEPS, self.records.path]
        words += ["--device", self.device, *(["--tiny"] if self.tiny else [])]
        while left and time.monotonic() < until:
            before = len(self.records.rows())
            code = self.ends([*words, *left], until, self.log)
            told = {row["step"]: row for row in self.records.rows()[before:]}
            for step, row in told.items():
                print(f"{step}: {shortly(row)}", flush=True)
            left = [step for step in left if step not in told]
            if left and code != FAILED:
                why = f"ended with {code}: {last_line(self.log)}" if code else "had no more time"
                self.records.add(left.pop(0), error=f"its process {why}")

    def tests(self, left: list[str], seconds: float) -> None:
        until = time.monotonic() + seconds
        workers = min(12, os.cpu_count() or 1)
        spread = ["-n", str(workers), "--dist", "worksteal"] if has("xdist") else []
        for step in left:
            if time.monotonic() >= until:
                return
            log = self.given.out / f"{step.replace('/', '-')}.txt"
            log.unlink(missing_ok=True)
            words = shlex.split(TESTS[step].format(device=self.device))
            # Other versions than those of constraints.txt warn of other things.
            pytest = [sys.executable, "-m", "pytest", "-v", "--tb=short", "-W", "ignore", *spread]
            began = time.monotonic()
            code = self.ends([*pytest, *words], until, log)
            found = counted(log.read_text(encoding="utf-8", errors="replace"))
            found["seconds"] = round(time.monotonic() - began, 1)
            if code is None:
                found["stopped"] = True
            if not found["executed"] or (code is None and found["executed"] < LEAST_TESTS):
                found["error"] = f"too few tests ran: {last_line(log)}"
            self.records.add(step, **found)

    def queue(self, left: list[str], seconds: float) -> None:
        """Some studies side by side, the next one when one ends."""
        until = time.monotonic() + seconds
        evidence = self.scratch / "evidence"
        if not evidence.exists():
            shutil.copytree(ROOT / "evidence", evidence)
        (self.scratch / "tiny.toml").write_text(TINY)
        os.environ["TORCHCAPS_CAPTURE"] = str(int(self.captures()))
        left, running = list(left), {}
        try:
            while left or running:
                now = time.monotonic()
                while left and len(running) < LANES and until - now > 2 * SAVING:
                    step = left.pop(0)
                    log = self.scratch / f"{step.replace('/', '-')}.txt"
                    words = self.study(step.removeprefix("queue/"), evidence, until - now - SAVING)
                    running[step] = (self.begin(words, log), now, words, log)
                if now >= until:
                    stop([process for process, *_ in running.values()])
                ended = [step for step, each in running.items() if each[0].poll() is not None]
                for step in ended:
                    process, began, words, log = running.pop(step)
                    found = {"error": last_line(log)} if process.returncode else {}
                    found |= {
                        "command": shlex.join(map(str, words)),
                        "captured": self.captures(),
                        "records": self.gather(evidence),
                    }
                    self.records.add(step, **found, seconds=round(time.monotonic() - began, 1))
                if not running and until - now <= 2 * SAVING:
                    return
                time.sleep(0.2)
        finally:
            stop([process for process, *_ in running.values()])
            self.gather(evidence)

    def captures(self) -> bool:
        """Whether studies train by graphs: once all tests have shown what these train."""
        tests = [row for row in self.records.rows() if row["step"] == "tests/gpu"][-1:]
        passed = [row for row in tests if row.get("passed") and not row["failed"]]
        return self.device == "cuda" and any("stopped" not in row for row in passed)

    def study(self, name: str, evidence: Path, seconds: float) -> list[str | Path]:
        what = [self.scratch / "tiny.toml"] if self.tiny else shlex.split(QUEUE[name]["run"])
        jobs = max(1, int((os.cpu_count() or 1) * SHARE_OF_CORES))
        return [
            *(sys.executable, "-m", "torchcaps", "study", "run", *what),
            *("--root", self.root, "--out", self.scratch / "runs"),
            *("--evidence", evidence, "--jobs", str(jobs), "--device", self.device),
            *("--time-budget", f"{max(1, int(seconds))}s"),
        ]

    def gather(self, evidence: Path) -> int:
        """All new records in one file; how many they are."""
        new = [path for path in sorted(evidence.rglob("*.json"))
               if not (ROOT / "evidence" / path.relative_to(evidence)).exists()]  # fmt: skip
        if new:
            whole = self.given.out / "evidence.zip"
            with zipfile.ZipFile(self.scratch / "new.zip", "w", zipfile.ZIP_DEFLATED) as packed:
                for path in new:
                    packed.write(path, Path("evidence") / path.relative_to(evidence))
            shutil.move(self.scratch / "new.zip", whole)
        return len(new)


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Tell their groups to end, and kill what has not after a while."""
    for signal_sent, patience in ((signal.SIGTERM, SAVING), (signal.SIGKILL, 5.0)):
        until = time.monotonic() + patience
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal_sent)
        for process in processes:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                continue


def counted(text: str) -> dict[str, Any]:
    """How many tests ran, by what pytest -v told until it ended or was stopped."""
    outcomes = {}
    for line in text.splitlines():
        told = TOLD.match(line.rstrip())
        if told and (told["first"] or told["last"]):
            outcomes[told["name"]] = told["first"] or told["last"]
    failed = sorted(name for name, how in outcomes.items() if how in ("FAILED", "ERROR"))
    passed = sum(how == "PASSED" for how in outcomes.values())
    return {"executed": passed + len(failed), "passed": passed, "failed": failed}


def verdict(rows: Sequence[dict[str, Any]]) -> str:
    """Empty, or the sentence that says why the tests do not stand."""
    latest = {row["step"]: row for row in rows if row["step"] in TESTS}
    executed = sum(row.get("executed", 0) for row in latest.values())
    failed = [name for row in latest.values() for name in row.get("failed", ())]
    if executed < LEAST_TESTS:
        return f"{executed} tests ran on the device, where at least {LEAST_TESTS} should."
    return f"{len(failed)} of {executed} tests failed, the first: {failed[0]}" if failed else ""


def beside_aims(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for every aim: what was measured, or that it is open."""
    latest = {row["step"]: row for row in rows}
    found = []
    for step, (name, aim) in AIMS.items():
        value = latest.get(step, {}).get(name)
        said = "open" if value is None else f"{value:,}"
        found.append(f"{step}: {name} {said}, aim {aim:,}")
    return found


def last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def run(given: argparse.Namespace) -> str:
    started = time.monotonic()
    given.out.mkdir(parents=True, exist_ok=True)
    given.scratch.mkdir(parents=True, exist_ok=True)
    # As Ctrl-C: children are told to end, and what is there stays.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["TORCHCAPS_TEST_DEVICE"] = given.device
    root = unpack(given.packed, given.scratch, given.root)
    lacking = [name for name in NEEDED if not has(name)]
    if lacking:
        return (
            f"this Python lacks {', '.join(lacking)}; install them, or bring wheels of them and of "
            f"what they need: python benchmarks/gpu.py pack --wheels NAMES"
        )
    import torch

    from torchcaps.train.folder.environment import environment

    if given.device == "cuda" and not torch.cuda.is_available():
        return "PyTorch sees no GPU here; --device cpu --tiny rehearses without one."
    records = Records(given.out / "gpu.jsonl", environment)
    work = Work(given, records, root)
    plan = [part for part in work.plan() if not given.parts or part.name in given.parts]
    spent = time.monotonic() - started
    left = go(plan, records, given.budget - spent, time.monotonic)
    if given.device == "cuda" and not given.tiny:
        print(*beside_aims(records.rows()), sep="\n")
    print(f"{time.monotonic() - started:.0f} s; left: {' '.join(left) or 'nothing'}")
    return verdict(records.rows()) if any(part.name == "tests" for part in plan) else ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    which = parser.add_subparsers(required=True)
    running = which.add_parser("run", help="all parts, or go on with what is left")
    running.set_defaults(call=run)
    running.add_argument("--budget", type=float, default=540.0, help="seconds (default 540)")
    running.add_argument("--out", type=Path, required=True, help="folder of what was found")
    running.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    running.add_argument("--tiny", action="store_true", help="few steps of few networks")
    running.add_argument("--parts", nargs="+", choices=PARTS, help="these alone")
    running.add_argument("--root", type=Path, default=Path("data"), help="folder of data sets")
    running.add_argument("--packed", type=Path, default=ROOT / "build" / "pack")
    running.add_argument("--scratch", type=Path, default=ROOT / "build" / "gpu-scratch")
    packing = which.add_parser("pack", help="gather what a machine without a network needs")
    packing.set_defaults(call=pack)
    packing.add_argument("--root", type=Path, default=Path("data"))
    packing.add_argument("--out", type=Path, default=ROOT / "build" / "pack")
    packing.add_argument("--wheels", nargs="*", default=RARE, help=f"default: {' '.join(RARE)}")
    packing.add_argument("--python", default="3.12", help="Python of the other machine")
    given = parser.parse_args()
    for name in ("out", "root", "packed", "scratch"):
        if name in given:
            setattr(given, name, getattr(given, name).resolve())
    try:
        sys.exit(given.call(given) or 0)
    except KeyboardInterrupt:
        sys.exit("stopped; the same line goes on.")


if __name__ == "__main__":
    main()
