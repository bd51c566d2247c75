"""Routing against self-attention: parameters, FLOPs, memory and time, [mitterreiter2023] Table 3.

OMP_NUM_THREADS=1 python benchmarks/attention.py

n capsules of d components vote for as many: dynamic routing, which the paper gives n² d² in space
and time, and multi-head self-attention, d² in space and n² d + n d² in time. FLOPs are of one
sample, `peak_mb` is what tensors take at most in a step of eight with its gradients, weights
included, counted and not timed, and `ms` the CPU milliseconds of eight without gradients, median of
nine rounds in which the two take turns. An exponent is the slope of a straight line through the
logarithms.

Prints a table and writes benchmarks/records/attention.json.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from growth import exponent
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from torchcaps._paths import write_whole
from torchcaps.layers import AttentionCapsules, DenseCapsules
from torchcaps.tasks.footprint import Footprint
from torchcaps.train.folder.environment import environment
from torchcaps.types import Capsules

RECORD = Path(__file__).parent / "records" / "attention.json"
SAMPLES, ROUNDS = 8, 9
AMOUNTS = ("parameters", "flops", "peak_mb", "ms")


def layer_of(kind: str, n: int, d: int) -> nn.Module:
    if kind == "attention":
        return AttentionCapsules(n=n, d=d)
    return DenseCapsules(n_in=n, d_in=d, n_out=n, d_out=d, routing="dynamic")


def costs(n: int, d: int) -> dict[str, dict[str, float]]:
    """What either takes, by its name."""
    layers = {kind: layer_of(kind, n, d) for kind in ("routing", "attention")}
    pose = torch.rand(SAMPLES, n, d)
    children = Capsules(pose, pose.norm(dim=-1))
    spent: dict[str, list[float]] = {kind: [] for kind in layers}
    with torch.no_grad():
        for _ in range(ROUNDS):
            for kind, layer in layers.items():
                started = time.process_time()
                layer(children)
                spent[kind].append(1e3 * (time.process_time() - started))
    found = {}
    for kind, layer in layers.items():
        one = Capsules(*(each[:1] for each in children))
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            layer(one)
        found[kind] = {
            "parameters": sum(weight.numel() for weight in layer.parameters()),
            "flops": counter.get_total_flops(),
            "peak_mb": peak_bytes(kind, n, d) / 2**20,
            "ms": statistics.median(spent[kind]),
        }
    return found


def peak_bytes(kind: str, n: int, d: int) -> int:
    """Count what a step with gradients takes at most, weights included."""
    with FakeTensorMode(), Footprint() as footprint:
        layer = layer_of(kind, n, d)
        pose = torch.rand(SAMPLES, n, d, requires_grad=True)
        layer(Capsules(pose, pose.norm(dim=-1))).parents.pose.sum().backward()
    return footprint.tensors


def against_attention(*, n: Sequence[int], d: Sequence[int]) -> list[dict[str, Any]]:
    """Over n at the first d, and over d at the first n."""
    rows = []
    for axis, pairs in (("n", [(each, d[0]) for each in n]), ("d", [(n[0], each) for each in d])):
        points = [(pair, costs(*pair)) for pair in pairs]
        for kind in ("routing", "attention"):
            measured = [{"n": pair[0], "d": pair[1], **found[kind]} for pair, found in points]
            slope = partial(exponent, [point[axis] for point in measured])
            fits = {amount: slope([point[amount] for point in measured]) for amount in AMOUNTS}
            rows.append({"layer": kind, "axis": axis, "points": measured, "exponents": fits})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="the two smallest sizes of every axis")
    parser.add_argument("--out", type=Path, default=RECORD)
    given = parser.parse_args()
    torch.set_num_threads(1)
    n, d = ((16, 32), (8, 16)) if given.tiny else ((32, 64, 128, 256), (16, 32, 64, 128))
    rows = against_attention(n=n, d=d)
    print(
        "axis  layer       " + "  ".join(f"{amount:>10}" for amount in AMOUNTS) + "   (exponents)"
    )
    for row in rows:
        fits = "  ".join(f"{row['exponents'][amount]:10.2f}" for amount in AMOUNTS)
        print(f"{row['axis']:4}  {row['layer']:10}  {fits}")
    record = {
        "command": "OMP_NUM_THREADS=1 python benchmarks/attention.py",
        "published": "mitterreiter2023 Table 3: routing n^2 d^2 in space and time; attention d^2 "
        "in space, n^2 d + n d^2 in time",
        "tiny": given.tiny,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment(),
        "rows": rows,
    }
    write_whole(given.out, json.dumps(record, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
