"""How time and memory grow with the sizes of a routing.

python benchmarks/growth.py            # on a quiet machine
python benchmarks/growth.py --tiny     # that it runs

One axis is varied at a time, for dynamic routing and its opponent, then for the other routings by
the last of our contestants alone; an exponent is the slope of a straight line through the
logarithms, so 1 is linear. Fixed costs pull it down: read it with the points beside it.

Prints the table and writes benchmarks/records/growth.json, whose part "attention" is of an earlier
version: see attention.py.
"""

import argparse
import dataclasses
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cases import CASES, Case
from contestants import CONTESTANTS, absent
from harness import ENVIRONMENTS, Settings, in_a_process
from record import write_record

RECORD = Path(__file__).parent / "records" / "growth.json"

NAMES = ["textbook", "ours-fused", "ours-native"]
# Votes of fewer children would be made, since they are few.
SIZES: dict[str, tuple[int, ...]] = {
    "i": (576, 1152, 2304, 4608),
    "j": (5, 10, 20, 40),
    "batch": (16, 32, 64, 128),
    "iterations": (1, 2, 4, 8),
    "resolution": (24, 32, 48, 64),
}
# Of the other routings, which have no opponent here; self-attention has one pass.
OTHERS = ("distance", "em", "inverted", "self_attention")
OTHER_AXES = ("i", "j", "iterations")


def case_at(axis: str, size: int, routing: str = "dynamic") -> Case:
    """A routing with full gradients; for the resolution, a network of windows."""
    if axis == "resolution":
        network = CASES["inverted-simple-train-32"]
        return dataclasses.replace(network, batch=4, image=(3, size, size))
    base = dataclasses.replace(CASES["dynamic-full"], batch=32, options={"routing": routing})
    if axis == "batch":
        return dataclasses.replace(base, batch=size)
    named = {"i": "n_in", "j": "n_out", "iterations": "iterations"}[axis]
    return dataclasses.replace(base, size=base.size | {named: size})


def exponent(sizes: Sequence[float], amounts: Sequence[float]) -> float:
    """The slope of log amount over log size.

    >>> round(exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    logs = [[math.log(each) for each in values] for values in (sizes, amounts)]
    return statistics.linear_regression(*logs).slope


def grow(
    routing: str, axis: str, sizes: Sequence[int], name: str, chosen: str, settings: Settings
) -> Any:
    """Points and exponents of one contestant along one axis."""
    points = []
    for size in sizes:
        task = {
            "task": "clock",
            "case": dataclasses.asdict(case_at(axis, size, routing)),
            "contestant": dataclasses.asdict(CONTESTANTS[name]),
        }
        clock = in_a_process(task, chosen, settings)
        point: dict[str, Any] = {"size": size}
        if "failure" in clock:
            point["failure"] = clock["failure"]
        else:
            point |= {"ms": statistics.median(clock["ms"]), "peak_mb": clock["peak_mb"]}
        points.append(point)
    fits = {}
    for amount in ("ms", "peak_mb"):
        # Less than a page more than the imports is no memory to speak of.
        good = [point for point in points if point.get(amount, 0) > 0]
        if len(good) > 1:
            x = [point["size"] for point in good]
            fits[amount] = exponent(x, [point[amount] for point in good])
    return {
        "routing": "inverted" if axis == "resolution" else routing,
        "axis": axis,
        "contestant": name,
        "environment": chosen,
        "points": points,
        "exponents": fits,
    }


def runs(
    axes: Sequence[str], routings: Sequence[str], names: Sequence[str]
) -> list[tuple[str, str, str]]:
    """Dynamic routing along every axis by everybody, the others by the fastest of ours."""
    ours = [name for name in names if CONTESTANTS[name].backend is not None][-1:]
    made = [("dynamic", axis, name) for axis in axes for name in names]
    for routing in routings:
        passes = OTHER_AXES if routing != "self_attention" else OTHER_AXES[:-1]
        made += [(routing, axis, name) for axis in passes if axis in axes for name in ours]
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=NAMES)
    parser.add_argument("--axes", nargs="*", choices=SIZES, default=[*SIZES])
    parser.add_argument("--routings", nargs="*", choices=OTHERS, default=OTHERS)
    parser.add_argument("--env", choices=ENVIRONMENTS, default="default")
    parser.add_argument("--seconds", type=float, default=2.0, help="a process times")
    parser.add_argument("--tiny", action="store_true", help="the two smallest sizes of every axis")
    parser.add_argument("--out", type=Path, default=RECORD)
    given = parser.parse_args()
    settings = Settings(seconds=given.seconds, rates=False)
    names = [name for name in given.contestants if absent(CONTESTANTS[name]) is None]
    print("routing         axis        contestant           time  memory   (exponents)")
    growth = []
    for routing, axis, name in runs(given.axes, given.routings, names):
        sizes = SIZES[axis][:2] if given.tiny else SIZES[axis]
        row = grow(routing, axis, sizes, name, given.env, settings)
        growth.append(row)
        ms, mb = (row["exponents"].get(amount, math.nan) for amount in ("ms", "peak_mb"))
        print(f"{row['routing']:14}  {axis:10}  {name:18}  {ms:5.2f}   {mb:5.2f}", flush=True)
    what = "exponents of time and peak memory of a step along one axis"
    write_record(given.out, what, tiny=given.tiny, growth=growth)


if __name__ == "__main__":
    main()
