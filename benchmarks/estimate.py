"""What `torchcaps estimate` says beside what a process takes.

python benchmarks/estimate.py

Five networks over two orders of magnitude, with one thread and with two. Each is trained for three
steps in a process of its own; measured is the peak of its resident memory above what the imports
take. Writes benchmarks/records/estimate.json. Linux only, since memory is read from /proc.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from process import memory_mb
from record import write_record

from torchcaps import create_model
from torchcaps.data import Batch
from torchcaps.layers import keep_memory, with_channels_last
from torchcaps.tasks.estimate import estimate
from torchcaps.train import make_recipe
from torchcaps.train.loss import loss_parts
from torchcaps.train.optimiser import make_optimiser

RECORD = Path(__file__).parent / "records" / "estimate.json"
STEPS = 3

CASES: dict[str, dict[str, Any]] = {
    "efficient": {"model": "efficient_capsnet", "batch_size": 1},
    "em": {"model": "matrix_capsnet", "batch_size": 16},
    "inverted": {"model": "tsai_inverted_simple_c10", "batch_size": 128},
    "effconv": {
        "model": "rem_effconv",
        "image": (3, 224, 224),
        "n_classes": 200,
        "batch_size": 32,
    },
    "inverted_resnet": {"model": "tsai_inverted_resnet_c10", "batch_size": 800},
}


def compare(name: str, *, threads: int) -> dict[str, Any]:
    """The estimate of a case in a process, and the memory of another that trains it."""
    said = estimate(**CASES[name])
    done = subprocess.run(
        [sys.executable, __file__, "--train", name, "--threads", str(threads)],
        # Threads that wait for each other sleep: on a busy machine they would wait for long.
        env=os.environ | {"OMP_WAIT_POLICY": "passive"},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    if done.returncode:
        raise RuntimeError(f"{name}: {done.returncode}, {done.stderr[-500:]}")
    measured = json.loads(done.stdout)
    estimated = said.training.process / 2**20
    return {
        "case": name,
        **CASES[name],
        "threads": threads,
        "estimated_mb": round(estimated, 1),
        "measured_mb": measured[-1],
        "measured_mb_by_step": measured,
        "error": round(estimated / measured[-1] - 1, 3),
    }


def train(name: str, threads: int) -> list[float]:
    """The peak so far, in MB above the imports, after every step."""
    torch.set_num_threads(threads)
    case = dict(CASES[name])
    recipe = make_recipe(
        model=case.pop("model"), data="part-whole", batch_size=case.pop("batch_size")
    )
    # Optimisers load it at their first step; it is an import, not what a step needs.
    importlib.import_module("torch._dynamo")
    before = memory_mb("VmRSS")
    # As `torchcaps train` does.
    keep_memory()
    network = create_model(recipe.model, **case)
    if recipe.channels_last:
        with_channels_last(network)
    pixels = torch.rand(recipe.batch_size, *network.config["image"])
    labels = torch.randint(network.config["n_classes"], (recipe.batch_size,))
    optimiser = make_optimiser(recipe, network.parameters())
    peaks = []
    for step in range(STEPS):
        out = network(pixels, labels)
        loss = sum(loss_parts(recipe, out, Batch(pixels, labels), step).values())
        del out
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        peaks.append(round(memory_mb("VmHWM") - before, 1))
    return peaks


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES])
    parser.add_argument("--train", choices=CASES, help="only train this one and say its peaks")
    parser.add_argument("--threads", type=int, default=1, help="of --train")
    given = parser.parse_args()
    if given.train:
        print(json.dumps(train(given.train, given.threads)))
        return
    rows = []
    for name in given.cases:
        for threads in (1, 2):
            row = compare(name, threads=threads)
            rows.append(row)
            print(
                f"{name:10} {threads} threads  estimated {row['estimated_mb']:7.0f} MB  "
                f"measured {row['measured_mb']:7.0f} MB  {row['error']:+.0%}",
                flush=True,
            )
    write_record(
        RECORD,
        "peak resident memory of training steps (forward, loss, backward, Adam) above the imports, "
        "as estimated before and as measured; MB are 2^20 bytes",
        bars="within 25 % at five configurations over two orders of magnitude",
        steps=STEPS,
        rows=rows,
    )


if __name__ == "__main__":
    main()
