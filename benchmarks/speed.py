"""How fast torchcaps is, and in how much memory, against what a textbook reader would write.

python benchmarks/speed.py                         # everything, hours; on a quiet machine
python benchmarks/speed.py --cases "dynamic*"      # some cases
python benchmarks/speed.py --without winograd      # ours also without a fast part
python benchmarks/speed.py --tiny --rounds 1       # that it runs: sizes a hundredth, no threshold

Prints the table and writes benchmarks/records/speed.json. Ends with 1 when a parity is red.
"""

import argparse
import dataclasses
import fnmatch
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from cases import CASES, CONTESTANTS, Case, Contestant, absent, leaving_out, ours, tiny
from harness import ENVIRONMENTS, Settings, measure, of_peak, table
from parts import PARTS, is_in

from torchcaps.train.run import environment, write_whole

RECORD = Path(__file__).parent / "records" / "speed.json"


def chosen(patterns: list[str]) -> list[Case]:
    """The cases whose names match any of the patterns, in the order of the table."""
    for pattern in patterns:
        if not fnmatch.filter(CASES, pattern):
            raise SystemExit(f"no case is called {pattern!r}; there are {', '.join(CASES)}.")
    return [
        case
        for name, case in CASES.items()
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    ]


def without(parts: list[str], contestants: list[Contestant], case: Case) -> list[Contestant]:
    """Our contestants again, each without one of the parts that this case has."""
    if not parts:
        return []
    with torch.device("meta"):
        module = ours(case)
    return [
        leaving_out(each, part)
        for part in parts
        if is_in(part, module)
        for each in contestants
        if each.backend is not None
    ]


def record_of(
    rows: list[dict[str, Any]], settings: Settings, missing: dict[str, str], *, is_tiny: bool
) -> dict[str, Any]:
    return {
        "what": "one step (forward, loss, backward, optimiser; an op without the last; inference "
        "the first alone): median wall time with quartiles, CPU time of all threads, peak resident "
        "memory over the imports, FLOPs, share of the best 1x1 convolution and, for what must be "
        "read and written, of the best copy of the same run",
        "tiny": is_tiny,
        "date": datetime.now(UTC).date().isoformat(),
        "environment": environment(),
        "settings": dataclasses.asdict(settings),
        "absent": missing,
        "rows": rows,
    }


def parser() -> argparse.ArgumentParser:
    default = Settings()
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--cases", nargs="+", default=["*"], help="names or patterns")
    made.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=[*CONTESTANTS])
    made.add_argument(
        "--without",
        nargs="+",
        choices=PARTS,
        default=[],
        help="time each of our contestants without these fast parts too, one part at a time, in "
        "the cases that have it",
    )
    made.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    made.add_argument("--env", nargs="+", choices=ENVIRONMENTS, default=[*ENVIRONMENTS])
    made.add_argument("--rounds", type=int, default=default.rounds)
    made.add_argument("--seconds", type=float, default=default.seconds, help="a process times")
    made.add_argument("--values", type=float, default=default.values, help="parity of outputs")
    made.add_argument("--gradients", type=float, default=default.gradients, help="of gradients")
    made.add_argument("--guard", type=float, default=default.guard_gb, help="GB a process may have")
    made.add_argument("--timeout", type=float, default=default.timeout, help="seconds a process")
    made.add_argument("--tiny", action="store_true", help="sizes a hundredth")
    made.add_argument("--out", type=Path, default=RECORD)
    made.add_argument("--list", action="store_true", help="print the names of the cases")
    return made


def main() -> None:
    given = parser().parse_args()
    cases = chosen(given.cases)
    if given.list:
        print("\n".join(case.name for case in cases))
        return
    contestants = [CONTESTANTS[name] for name in given.contestants]
    missing = {each.name: why for each in contestants if (why := absent(each, given.device))}
    for name, why in missing.items():
        print(f"{name}: absent, {why}")
    load = os.getloadavg()[0]
    if load > 0.5 and not given.tiny:
        _tell(f"the machine is busy (load {load:.1f}): these times are not to be trusted")
    settings = Settings(
        rounds=given.rounds,
        seconds=given.seconds,
        values=given.values,
        gradients=given.gradients,
        guard_gb=given.guard,
        timeout=given.timeout,
    )
    rows: list[dict[str, Any]] = []
    for case in cases:
        sized = dataclasses.replace(tiny(case) if given.tiny else case, device=given.device)
        taking_part = [*contestants, *without(given.without, contestants, sized)]
        rows += measure(sized, taking_part, given.env, settings, tell=_tell)
        # After every case: hours are not lost with the last of them.
        record = record_of(of_peak(rows), settings, missing, is_tiny=given.tiny)
        write_whole(given.out, json.dumps(record, indent=2, allow_nan=False) + "\n")
    print(table(of_peak(rows)))
    if any(row["parity"]["green"] is False for row in rows):
        raise SystemExit(1)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
