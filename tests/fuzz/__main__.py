"""`make fuzz`: draw for some minutes, or so many of each, and write down what came of it."""

import argparse
import contextlib
import json
import math
import platform
import random
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from cli.command_line import tiny
from fuzz import inputs, numbers, values
from fuzz.bench import Bench
from fuzz.commands import check_command, draw_command
from torchcaps.data import SOURCES

SHOWN = 20
# How often each kind has its turn; one turn of values has twenty of them.
WEIGHTS = {"files": 4.0, "commands": 2.0, "values": 0.4, "numbers": 4.0}
# Of the bad inputs. Commands take longest, and readers have more to lose.
SHARES = {"files": 0.6, "commands": 0.2, "values": 0.2}
Attempt = tuple[str, Callable[[], str | list[str]]]
Draw = Callable[[random.Random], Attempt]


def fuzz(
    seed: int,
    *,
    seconds: float,
    most: Mapping[str, float],
    tell: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Draw until the time is up or so many of each kind were tried; counts, and what was wrong.
    `tell` is called with each before it is tried."""
    draw, until = random.Random(seed), time.monotonic() + seconds
    tried: dict[str, Counter[str]] = {kind: Counter() for kind in WEIGHTS}
    wrong: list[str] = []
    # Of the wrong ones.
    off = 0
    with bench() as here:
        kinds = _kinds(here)
        while time.monotonic() < until:
            left = [kind for kind in WEIGHTS if tried[kind].total() < most.get(kind, math.inf)]
            if not left:
                break
            (kind,) = draw.choices(left, [WEIGHTS[each] for each in left])
            what, call = kinds[kind](draw)
            tell(f"{kind}: {what}")
            try:
                found = call()
            except Exception as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{Path(last.filename).name}:{last.lineno}"
                said = f"{type(error).__name__}: {str(error)[:500]}"
                wrong.append(f"{kind}: {what}: {said} ({where})")
                found = "wrong"
                off += isinstance(error, numbers.Off)
            tried[kind].update([found] if isinstance(found, str) else found)
    counts = {kind: {"tried": each.total(), **sorted_(each)} for kind, each in tried.items()}
    return {"seed": seed, **counts, "wrong": wrong, "off": off}


@contextlib.contextmanager
def bench() -> Iterator[Bench]:
    with (
        tempfile.TemporaryDirectory() as folder,
        # Where commands write what they are told to by a name without a folder, or by "../..".
        tempfile.TemporaryDirectory() as top,
        contextlib.chdir(_deep(Path(top))),
        mock.patch.dict(SOURCES, tiny=tiny),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield Bench(Path(folder))


def _kinds(bench: Bench) -> dict[str, Draw]:
    """What is drawn of each kind: in words, and as a call that says what came of it."""
    targets, of_values = inputs.targets(bench), values.properties(bench)

    def a_file(draw: random.Random) -> Attempt:
        target, turn = draw.choice(targets), draw.randrange(2**32)
        what = f"{target.name}, {target.change.__name__}, {turn}"
        return what, lambda: inputs.check_file(target, random.Random(turn))

    def a_command(draw: random.Random) -> Attempt:
        words = draw_command(draw, bench)
        return repr(words)[:300], lambda: check_command(words)

    def some_values(draw: random.Random) -> Attempt:
        which, turn = draw.choice(of_values), draw.randrange(2**32)
        return f"{which.name}, {turn}", lambda: values.check_property(which, turn)

    def a_case(draw: random.Random) -> Attempt:
        drawn = numbers.draw(draw)
        return repr(drawn), lambda: list(numbers.check(drawn).values())

    return {"files": a_file, "commands": a_command, "values": some_values, "numbers": a_case}


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
    parser.add_argument(
        "--lenient", action="store_true", help="a number that is off is told, and is no failure"
    )
    parser.add_argument(
        "--tell", action="store_true", help="each before it is tried, where one ends the process"
    )
    asked = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if asked.seed is None else asked.seed
    print(f"seed {seed}", flush=True)
    torch.set_num_threads(1)
    started, surroundings = time.monotonic(), _surroundings()
    most = {kind: share * asked.inputs for kind, share in SHARES.items()}
    found = fuzz(
        seed,
        seconds=60 * asked.minutes,
        most=most | {"numbers": asked.numbers},
        tell=partial(print, flush=True) if asked.tell else lambda what: None,
    )
    found["seconds"] = round(time.monotonic() - started)
    for each in found["wrong"][:SHOWN]:
        print(each)
    print(json.dumps({**found, "wrong": len(found["wrong"])}))
    if asked.record is not None:
        line = f"python -m fuzz --minutes {asked.minutes:g} --seed {seed}"
        line += "".join(
            f" --{name} {limit:g}"
            for name, limit in (("inputs", asked.inputs), ("numbers", asked.numbers))
            if limit < math.inf
        )
        about = {**found, **surroundings, "command": line}
        asked.record.write_text(json.dumps(about, indent=2) + "\n")
    return len(found["wrong"]) > (found["off"] if asked.lenient else 0)


def _surroundings() -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    return {
        "commit": commit.stdout.strip(),
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "machine": f"{platform.system()} {platform.machine()}, one thread",
    }


if __name__ == "__main__":
    sys.exit(main())
