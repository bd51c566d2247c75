"""What a second thread gives, and what many parents cost: the two rates that a kernel can lose.

python benchmarks/cores.py            # on a quiet machine of two cores
python benchmarks/cores.py --tiny     # that it runs

threads  a step with one thread and with two, in turn, for an op and for networks.
parents  dynamic routing with 10, 100 and 1,000 parents: its useful FLOPs a second as a share of the
         best product of matrices that the run saw. Work that a kernel does again does not count.

Prints both tables and writes benchmarks/records/cores.json.
"""

import argparse
import dataclasses
import os
import statistics
from pathlib import Path
from typing import Any

from cases import CASES, Case, tiny
from contestants import CONTESTANTS
from harness import Settings, in_a_process, measure, of_peak
from record import write_record

RECORD = Path(__file__).parent / "records" / "cores.json"

THREADS = (1, 2)
ROUTED = ("dynamic-detach", "dynamic-full", "capsnet-train-128", "em-train-128")
ROUTED += ("gamma-train-128", "inverted-simple-train-32", "efficient-train-128")
KINDS, PARENTS = ("dynamic-detach", "dynamic-full"), (10, 100, 1000)

Result = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="*", choices=ROUTED, default=ROUTED)
    parser.add_argument("--parents", nargs="*", type=int, default=PARENTS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0, help="a process times")
    parser.add_argument("--tiny", action="store_true", help="sizes a hundredth")
    parser.add_argument("--out", type=Path, default=RECORD)
    given = parser.parse_args()
    settings = Settings(rounds=given.rounds, seconds=given.seconds, checked=False, rates=False)
    small = tiny if given.tiny else lambda case: case
    threads = [by_threads(small(CASES[name]), settings) for name in given.cases]
    # Sums of so many parents are so short that the 1e-8 in the textbook's squash is seen.
    counted = dataclasses.replace(settings, checked=True, rates=True, values=2e-5)
    parents = by_parents([small(of_parents(k, n)) for k in KINDS for n in given.parents], counted)
    write_record(
        given.out,
        "speed of two threads over one, and share of the GEMM peak by number of parents",
        tiny=given.tiny,
        threads=threads,
        parents=parents,
    )


def by_threads(case: Case, settings: Settings) -> Result:
    """The medians of a step for either number of threads, and how many times as fast two are."""
    steps: dict[int, list[float]] = {number: [] for number in THREADS}
    task = {
        "task": "clock",
        "case": dataclasses.asdict(case),
        "contestant": dataclasses.asdict(CONTESTANTS["ours-by-default"]),
    }
    for _ in range(settings.rounds):
        for number in THREADS:
            os.environ["OMP_NUM_THREADS"] = str(number)
            clock = in_a_process(task, "default", settings)
            if "failure" in clock:
                return {"case": case.name, "failure": clock["failure"]}
            steps[number] += clock["ms"]
    del os.environ["OMP_NUM_THREADS"]
    one, two = (statistics.median(steps[number]) for number in THREADS)
    print(f"{case.name:28}  {one:8.1f} ms  {two:8.1f} ms  {one / two:.2f} times", flush=True)
    return {"case": case.name, "one_ms": one, "two_ms": two, "times": one / two}


def of_parents(kind: str, number: int) -> Case:
    case = CASES[kind]
    size = case.size | {"n_out": number}
    return dataclasses.replace(case, name=f"{kind}-{number}-parents", size=size)


def by_parents(cases: list[Case], settings: Settings) -> list[Result]:
    ours = [CONTESTANTS["ours-by-default"]]
    rows = of_peak([row for case in cases for row in measure(case, ours, ["default"], settings)])
    for row in rows:
        ms, share = row.get("ms", float("nan")), row.get("percent_of_peak", float("nan"))
        print(f"{row['case']:28}  {ms:8.1f} ms  {share:5.1f} % of the peak", flush=True)
    return rows


if __name__ == "__main__":
    main()
