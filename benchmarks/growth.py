"""How time and memory grow with the sizes of a routing, and routing against self-attention.

python benchmarks/growth.py            # on a quiet machine
python benchmarks/growth.py --tiny     # that it runs

One axis is varied at a time, for dynamic routing and its opponent, then for the other routings by
the last of our contestants alone; an exponent is the slope of a straight line through the
logarithms, so 1 is linear. Fixed costs pull it down: read it with the points beside it. The second
part measures [mitterreiter2023] Table 3, n capsules of d components to as many: dynamic routing,
which it gives n² d² parameters and operations, and multi-head self-attention, d² and n² d + n d².

Prints both tables and writes benchmarks/records/growth.json.
"""

import argparse
import dataclasses
import json
import math
import statistics
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from cases import CASES, Case
from contestants import CONTESTANTS, absent
from harness import ENVIRONMENTS, Settings, in_a_process
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from torchcaps.layers import AttentionCapsules, DenseCapsules
from torchcaps.train.run import environment, write_whole
from torchcaps.types import Capsules

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


def against_attention(*, n: Sequence[int], d: Sequence[int]) -> list[dict[str, Any]]:
    """Parameters, FLOPs of one sample and the time of eight, over n at the first d and over d at
    the first n."""
    rows = []
    for kind in ("routing", "attention"):
        for axis, pairs in (
            ("n", [(each, d[0]) for each in n]),
            ("d", [(n[0], each) for each in d]),
        ):
            points = [_cost(kind, many, size) | {"n": many, "d": size} for many, size in pairs]
            x = [point[axis] for point in points]
            fits = {
                amount: exponent(x, [point[amount] for point in points])
                for amount in ("parameters", "flops", "ms")
            }
            rows.append({"layer": kind, "axis": axis, "points": points, "exponents": fits})
    return rows


def _cost(kind: str, n: int, d: int) -> dict[str, float]:
    layer: nn.Module = AttentionCapsules(n=n, d=d)
    if kind == "routing":
        layer = DenseCapsules(n_in=n, d_in=d, n_out=n, d_out=d, routing="dynamic")
    children = torch.rand(8, n, d)
    with torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            layer(_capsules(children[:1]))
        spent = []
        for _ in range(7):
            started = time.perf_counter()
            layer(_capsules(children))
            spent.append(1e3 * (time.perf_counter() - started))
    return {
        "parameters": sum(parameter.numel() for parameter in layer.parameters()),
        "flops": counter.get_total_flops(),
        "ms": statistics.median(spent),
    }


def _capsules(pose: torch.Tensor) -> Capsules:
    return Capsules(pose, pose.norm(dim=-1))


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
    n, d = ((16, 32), (8, 16)) if given.tiny else ((32, 64, 128, 256), (16, 32, 64, 128))
    attention = against_attention(n=n, d=d)
    print("\naxis  layer       parameters  FLOPs   time   (exponents)")
    for row in attention:
        fits = row["exponents"]
        print(
            f"{row['axis']:4}  {row['layer']:10}  {fits['parameters']:10.2f}  {fits['flops']:5.2f}"
            f"  {fits['ms']:5.2f}"
        )
    record = {
        "what": "growth: exponents of time and peak memory of a step along one axis; attention: "
        "parameters, FLOPs of one sample, milliseconds of eight, without gradients",
        "published": "mitterreiter2023 Table 3: routing n^2 d^2 in space and time; attention d^2 "
        "in space, n^2 d + n d^2 in time",
        "tiny": given.tiny,
        "date": datetime.now(UTC).date().isoformat(),
        "environment": environment(),
        "growth": growth,
        "attention": attention,
    }
    write_whole(given.out, json.dumps(record, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
