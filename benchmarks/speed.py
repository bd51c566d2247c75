"""How fast torchcaps is, and in how much memory, against what a textbook reader would write.

python benchmarks/speed.py                         # everything, hours; on a quiet machine
python benchmarks/speed.py --cases "dynamic*"      # some cases
python benchmarks/speed.py --without winograd      # ours also without a fast part
python benchmarks/speed.py --against COMMIT        # ours beside another commit's, 17 rows
python benchmarks/speed.py --tiny --rounds 1       # that it runs: sizes a hundredth, no threshold

Prints the table and writes benchmarks/records/speed.json, or speed_against.json. Ends with 1 when a
parity is red, or when a case is below 0.9 times the other commit's speed or above 1.1 times its
memory.
"""

import argparse
import dataclasses
import fnmatch
import json
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import against
import torch
from against import NAMED
from cases import CASES, Case, tiny
from contestants import CONTESTANTS, Contestant, absent, leaving_out
from harness import ENVIRONMENTS, Settings, measure, of_peak, table
from parts import PARTS, is_in
from subjects import ours

from torchcaps._paths import write_whole
from torchcaps.train.folder.environment import environment

STEP = (
    "one step (forward, loss, backward, optimiser; an op without the last; inference the first "
    "alone): median wall time with quartiles, CPU time of all threads, peak resident memory over "
    "the imports, FLOPs, share of the best 1x1 convolution and, for what must be read and written, "
    "of the best copy of the same run"
)
BESIDE = (
    "one step, as in speed.json, by this commit and by another, in processes that take turns; "
    "`speed` is the other's time over this one's, `memory` this one's peak over the other's; "
    f"{', '.join(against.ONE_ROUND)} has one round"
)
RECORDS = Path(__file__).parent / "records"


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


def record_of(what: str, settings: Settings, given: argparse.Namespace) -> dict[str, Any]:
    return {
        "what": what,
        "tiny": given.tiny,
        "date": datetime.now(UTC).date().isoformat(),
        "environment": environment() | {"processor": processor()},
        "settings": dataclasses.asdict(settings),
    }


def processor() -> str:
    """Its name, and the widest vectors that PyTorch's own kernels use here."""
    names = re.findall(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text()) or ["unknown"]
    return f"{names[0]}, {torch.backends.cpu.get_cpu_capability()}"


def write(out: Path, record: dict[str, Any]) -> None:
    """After every case: hours are not lost with the last of them."""
    write_whole(out, json.dumps(record, indent=2, allow_nan=False) + "\n")


def parser() -> argparse.ArgumentParser:
    default = Settings()
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--cases", nargs="+", help="names or patterns; all, or ten against a commit")
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
    made.add_argument(
        "--seconds",
        type=float,
        help="a process times: 5, or 3 against a commit",
    )
    made.add_argument("--values", type=float, default=default.values, help="parity of outputs")
    made.add_argument("--gradients", type=float, default=default.gradients, help="of gradients")
    made.add_argument("--guard", type=float, default=default.guard_gb, help="GB a process may have")
    made.add_argument("--timeout", type=float, default=default.timeout, help="seconds a process")
    made.add_argument("--tiny", action="store_true", help="sizes a hundredth")
    made.add_argument("--against", metavar="COMMIT", help="time its torchcaps in between")
    made.add_argument("--out", type=Path, help="the record")
    made.add_argument("--list", action="store_true", help="print the names of the cases")
    return made


def main() -> None:
    given = parser().parse_args()
    cases = chosen(given.cases or (NAMED if given.against else ["*"]))
    if given.list:
        print("\n".join(case.name for case in cases))
        return
    settings = settings_of(given)
    load = os.getloadavg()[0]
    if load > 0.5 and not given.tiny:
        _tell(f"the machine is busy (load {load:.1f}): these times are not to be trusted")
    if given.against:
        beside(cases, settings, given)
    else:
        among_each_other(cases, settings, given)


def settings_of(given: argparse.Namespace) -> Settings:
    return Settings(
        rounds=given.rounds,
        seconds=given.seconds or (3.0 if given.against else Settings.seconds),
        values=given.values,
        gradients=given.gradients,
        guard_gb=given.guard,
        timeout=given.timeout,
    )


def sized(case: Case, given: argparse.Namespace) -> Case:
    return dataclasses.replace(tiny(case) if given.tiny else case, device=given.device)


def among_each_other(cases: list[Case], settings: Settings, given: argparse.Namespace) -> None:
    """All contestants of this commit."""
    contestants = [CONTESTANTS[name] for name in given.contestants]
    missing = {each.name: why for each in contestants if (why := absent(each, given.device))}
    for name, why in missing.items():
        print(f"{name}: absent, {why}")
    rows: list[dict[str, Any]] = []
    for case in cases:
        chosen_size = sized(case, given)
        taking_part = [*contestants, *without(given.without, contestants, chosen_size)]
        rows += measure(chosen_size, taking_part, given.env, settings, tell=_tell)
        record = record_of(STEP, settings, given) | {"absent": missing, "rows": of_peak(rows)}
        write(given.out or RECORDS / "speed.json", record)
    print(table(of_peak(rows)))
    if any(row["parity"]["green"] is False for row in rows):
        raise SystemExit(1)


def beside(cases: list[Case], settings: Settings, given: argparse.Namespace) -> None:
    """Ours of this commit and of another."""
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        commit = against.named(given.against)
        sources = against.unpacked(commit, Path(folder))
        for case in cases:
            rows.append(against.compared(sized(case, given), commit, sources, settings, tell=_tell))
            record = record_of(BESIDE, against.of_ours(settings), given)
            record |= {"against": commit, "rows": rows}
            write(given.out or RECORDS / "speed_against.json", record)
    print(against.report(rows))
    if any(row["flags"] for row in rows):
        raise SystemExit(1)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
