"""How many images a second are trained on, and how many the data path could bring.

python benchmarks/throughput.py                 # on a quiet machine: a few minutes
python benchmarks/throughput.py --device cuda   # training alone, on a GPU: half a minute
python benchmarks/throughput.py --tiny          # that it runs

A training step is that of `torchcaps train`: batch, forward, loss, backward, Adam. Each network is
measured in a process of its own, peak memory over what the imports take; on a GPU, which counts its
memory itself, all in one. The data path makes the same batches of 28×28 bytes and throws them away.
Writes benchmarks/records/throughput.json, of a GPU throughput_gpu.json.
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from process import memory_mb

from torchcaps._paths import write_whole
from torchcaps.data import Images, ImageSet, augmented
from torchcaps.data.make.affnist_style import AffnistStyle
from torchcaps.data.make.expanded import Expanded
from torchcaps.data.make.multi_mnist import MultiMnist
from torchcaps.train import make_recipe
from torchcaps.train.batches import Batches, held_on
from torchcaps.train.fit import initial_model
from torchcaps.train.folder.environment import environment
from torchcaps.train.loss import loss_parts
from torchcaps.train.optimiser import make_optimiser

RECORD = Path(__file__).parent / "records" / "throughput.json"
GPU_RECORD = RECORD.with_name("throughput_gpu.json")
Shape = tuple[int, int, int]
# Preset, image, batch size.
NETWORKS: list[tuple[str, Shape, int]] = [
    ("capsnet", (1, 28, 28), 128),
    ("mitterreiter_5x16", (1, 28, 28), 128),
    ("efficient_capsnet", (1, 28, 28), 128),
    ("efficient_convnet", (1, 28, 28), 128),
    ("gamma_capsnet", (1, 28, 28), 128),
    ("deepcaps", (3, 32, 32), 128),
    ("matrix_capsnet", (2, 32, 32), 32),
    ("tsai_inverted_simple_c10", (3, 32, 32), 32),
    ("tsai_inverted_resnet_c10", (3, 32, 32), 32),
    ("resnet18", (3, 32, 32), 128),
]
# "data path at least 20 times as fast as capsnet trains"
BAR = 20


def images_of(shape: Shape, count: int) -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=generator)
    return ImageSet("noise", pixels, torch.arange(count) % 10, tuple("0123456789"))


def train(
    name: str, shape: tuple[int, int, int], batch_size: int, seconds: float
) -> dict[str, Any]:
    """Runs in the child: images a second, and the peak of memory."""
    # The optimiser loads it at its first step; it is an import, not what a step needs.
    importlib.import_module("torch._dynamo")
    before = memory_mb("VmRSS")
    recipe = make_recipe(model=name, data="own", batch_size=batch_size)
    images = images_of(shape, 2 * batch_size)
    model = initial_model(recipe, images).train()
    optimiser = make_optimiser(recipe, model.parameters())
    batches = Batches(images, batch_size, seed=0)
    wall: list[float] = []
    while len(wall) < 3 or sum(wall[1:]) < seconds:
        for batch in batches:
            started = time.perf_counter()
            out = model(batch.pixels, batch.labels)
            loss = torch.stack(list(loss_parts(recipe, out, batch, 0).values())).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            wall.append(time.perf_counter() - started)
    # The first step builds and allocates what the others find ready.
    rate = batch_size / statistics.median(wall[1:])
    return {"images_per_second": round(rate, 1), "peak_mb": round(memory_mb("VmHWM") - before)}


def data_path(count: int) -> dict[str, float]:
    """Images a second of every way to make a batch of 128."""
    digits = images_of((1, 28, 28), count)
    ways: dict[str, Images] = {
        "as they are": digits,
        **{name: augmented(digits, name) for name in ("shift2", "affine", "crop4-flip")},
        "expanded-mnist": Expanded(digits),
        "affnist-style": AffnistStyle(digits),
        "multi-mnist": MultiMnist(digits),
    }
    found = {}
    for name, images in ways.items():
        batches = Batches(images, 128, seed=0)
        list(zip(range(2), batches, strict=False))
        started = time.perf_counter()
        for _ in batches:
            pass
        found[name] = round(len(images) / (time.perf_counter() - started))
    return found


def train_on_gpu(name: str, shape: Shape, batch_size: int, seconds: float) -> dict[str, Any]:
    """As `train`, with the images on the GPU; one clock for all steps, which nobody waits for."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    recipe = make_recipe(model=name, data="own", batch_size=batch_size)
    images = held_on(images_of(shape, 2 * batch_size), torch.device("cuda"))
    model = initial_model(recipe, images).cuda().train()
    optimiser = make_optimiser(recipe, model.parameters())
    batches = Batches(images, batch_size, seed=0)

    def steps(least: float) -> tuple[int, float]:
        torch.cuda.synchronize()
        count, started = 0, time.perf_counter()
        while count < 4 or time.perf_counter() - started < least:
            for batch in batches:
                out = model(batch.pixels, batch.labels)
                loss = torch.stack(list(loss_parts(recipe, out, batch, 0).values())).sum()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                count += 1
        torch.cuda.synchronize()
        return count, time.perf_counter() - started

    steps(0.5)
    count, taken = steps(seconds)
    peak = torch.cuda.max_memory_allocated() / 2**20
    return {"images_per_second": round(count * batch_size / taken, 1), "peak_mb": round(peak)}


def in_a_process(words: list[str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, *words], capture_output=True, text=True, check=True
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="few images, one step")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(train(**json.loads(given.child))))
        return
    load = os.getloadavg()[0]
    rows = []
    for name, shape, batch_size in NETWORKS[:3] if given.tiny else NETWORKS:
        task = {"name": name, "shape": shape, "batch_size": 4 if given.tiny else batch_size}
        if given.device == "cuda":
            rows.append(task | train_on_gpu(**task, seconds=0.0 if given.tiny else 2.0))
        else:
            asked = json.dumps(task | {"seconds": 0.0 if given.tiny else 10.0})
            rows.append(task | in_a_process(["--child", asked]))
        print(json.dumps(rows[-1]), flush=True)
    about = {
        "tiny": given.tiny,
        "date": datetime.now(UTC).date().isoformat(),
        "environment": environment(),
        "load_at_start": round(load, 2),
        "training": rows,
    }
    if given.device == "cuda":
        what = "images a second in training (mean step), with peak memory of the GPU"
        write_whole(given.out or GPU_RECORD, json.dumps({"what": what} | about, indent=2) + "\n")
        return
    paths = data_path(256 if given.tiny else 20_000)
    capsnet = next(row["images_per_second"] for row in rows if row["name"] == "capsnet")
    record = {
        "what": "images a second in training (median step) with peak memory over the imports; "
        "images a second that the data path makes in batches of 128, and times capsnet's rate",
        "bar": f"the data path at least {BAR} times as fast as capsnet trains",
        **about,
        "data_path": {
            name: {"images_per_second": rate, "times_capsnet": round(rate / capsnet, 1)}
            for name, rate in paths.items()
        },
    }
    write_whole(given.out or RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    print(json.dumps(record["data_path"], indent=2))


if __name__ == "__main__":
    main()
