"""`make fuzz`: draw for some minutes, or so many of each, and write down what came of it."""

import argparse
import contextlib
import json
import platform
import random
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from cli.command_line import tiny
from fuzz import inputs, numbers, values
from fuzz.bench import Bench
from fuzz.commands import check_command, draw_command
from torchcaps.data import SOURCES

__all__ = ["fuzz", "main"]

SHOWN = 20


def fuzz(
    seed: int, *, seconds: float, files: float, commands: float, made: float, cases: float
) -> dict[str, Any]:
    """Draw until the time is up or so many of each were tried; counts, and what was wrong."""
    draw, until = random.Random(seed), time.monotonic() + seconds
    tried: dict[str, Counter[str]] = {
        "files": Counter(),
        "commands": Counter(),
        "values": Counter(),
        "numbers": Counter(),
    }
    wrong: list[str] = []

    def attempt(kind: str, what: str, call: Callable[[], Any]) -> None:
        try:
            found = call()
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            wrong.append(f"{kind}: {what}: {type(error).__name__}: {str(error)[:200]} ({where})")
            tried[kind]["wrong"] += 1
            return
        tried[kind].update(found.values() if isinstance(found, dict) else [found])

    with (
        tempfile.TemporaryDirectory() as folder,
        # Where commands write what they are told to by a name without a folder, or by "../..".
        tempfile.TemporaryDirectory() as top,
        contextlib.chdir(_deep(Path(top))),
        mock.patch.dict(SOURCES, tiny=tiny),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        bench = Bench(Path(folder))
        targets, properties = inputs.targets(bench), values.properties(bench)
        limits = {"files": files, "commands": commands, "values": made, "numbers": cases}
        while time.monotonic() < until:
            open_ = [kind for kind, most in limits.items() if tried[kind].total() < most]
            if not open_:
                break
            kind = draw.choice(open_)
            if kind == "files":
                target, turn = draw.choice(targets), draw.randrange(2**32)
                attempt(
                    kind,
                    f"{target.name}, {turn}",
                    lambda target=target, turn=turn: inputs.check_file(target, random.Random(turn)),
                )
            elif kind == "commands":
                words = draw_command(draw, bench)
                attempt(kind, repr(words)[:300], lambda words=words: check_command(words))
            elif kind == "values":
                which, turn = draw.choice(properties), draw.randrange(2**32)
                attempt(
                    kind,
                    f"{which.name}, {turn}",
                    lambda which=which, turn=turn: values.check_property(which, turn),
                )
            else:
                drawn = numbers.draw(draw)
                attempt(kind, repr(drawn), lambda drawn=drawn: numbers.check(drawn))
    counts = {kind: {"tried": each.total(), **sorted_(each)} for kind, each in tried.items()}
    return {"seed": seed, **counts, "wrong": wrong}


def _deep(folder: Path) -> Path:
    here = folder / "a" / "b" / "c"
    here.mkdir(parents=True)
    return here


def sorted_(counts: Counter[str]) -> dict[str, int]:
    return {"wrong": 0, **dict(sorted(counts.items()))}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=None, help="drawn, and printed, if not given")
    parser.add_argument("--inputs", type=float, default=float("inf"), help="bad inputs at most")
    parser.add_argument("--numbers", type=float, default=float("inf"), help="cases at most")
    parser.add_argument("--record", type=Path, help="a JSON file for what came of it")
    asked = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if asked.seed is None else asked.seed
    print(f"seed {seed}", flush=True)
    torch.set_num_threads(1)
    started = time.monotonic()
    # Commands take longest, and readers have more to lose.
    found = fuzz(
        seed,
        seconds=60 * asked.minutes,
        files=0.6 * asked.inputs,
        commands=0.2 * asked.inputs,
        made=0.2 * asked.inputs,
        cases=asked.numbers,
    )
    found["seconds"] = round(time.monotonic() - started)
    for each in found["wrong"][:SHOWN]:
        print(each)
    print(json.dumps({**found, "wrong": len(found["wrong"])}))
    if asked.record is not None:
        asked.record.write_text(json.dumps({**found, **_surroundings()}, indent=2) + "\n")
    return bool(found["wrong"])


def _surroundings() -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    return {
        "commit": commit.stdout.strip(),
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "machine": f"{platform.system()} {platform.machine()}, one thread",
        "command": "make fuzz " + " ".join(sys.argv[1:]),
    }


if __name__ == "__main__":
    sys.exit(main())
