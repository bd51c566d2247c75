"""Which networks are faster with the channels of their convolutions last.

python benchmarks/layouts.py                            # all below, an hour; on a quiet machine
python benchmarks/layouts.py --models efficient_capsnet rem_deepcaps --precision bfloat16

Two networks of a model take steps by turns, one with its channels last, with kept memory. Rows of
other models and precisions stay in benchmarks/records/layouts.json, which `models.layout` goes by.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from torchcaps.data import Batch
from torchcaps.layers import keep_memory, with_channels_last
from torchcaps.models import MODELS, create_model
from torchcaps.train import make_recipe
from torchcaps.train.environment import environment
from torchcaps.train.loss import loss_parts
from torchcaps.train.optimiser import make_optimiser
from torchcaps.train.run import write_whole

RECORD = Path(__file__).parent / "records" / "layouts.json"
# One of each family; images are those of its paper.
REPRESENTATIVES = (
    "capsnet",
    "rem_gamma",
    "rem_deepcaps",
    "efficient_capsnet",
    "rem_eff_norb",
    "rem_effconv",
    "mitterreiter_5x16",
    "peer_deep_dynamic",
    "matrix_capsnet",
    "tsai_inverted_simple_c10",
    "tsai_inverted_resnet_c10",
    "tsai_dynamic_simple_c10",
    "tsai_dynamic_resnet_c10",
    "tsai_em_simple_c10",
    "tsai_em_resnet_c10",
    "tsai_cnn_c10",
    "convnet_avg",
    "convnet_fc",
    "gu_convnet_cr",
    "resnet18",
)
TASKS = ("train", "predict")


def compare(model: str, *, batch_size: int, precision: str, seconds: float) -> dict[str, Any]:
    """Median milliseconds of both layouts, by wall and by CPU time, of both tasks."""
    row: dict[str, Any] = {"model": model, "precision": precision, "batch_size": batch_size}
    for task in TASKS:
        steps = [
            _step(model, task, batch_size, precision, is_last=is_last) for is_last in (False, True)
        ]
        times: list[list[tuple[float, float]]] = [[], []]
        for step in steps:
            step()
        until = time.perf_counter() + seconds
        while time.perf_counter() < until or len(times[0]) < 3:
            for step, seen in zip(steps, times, strict=True):
                seen.append(_timed(step))
        wall, cpu = (
            [statistics.median(each[kind] for each in seen) for seen in times] for kind in (0, 1)
        )
        row[task] = {
            "ms": {"first": round(wall[0], 1), "last": round(wall[1], 1)},
            "cpu_ms": {"first": round(cpu[0], 1), "last": round(cpu[1], 1)},
            "times_as_fast": round(wall[0] / wall[1], 2),
            "times_as_fast_by_cpu_time": round(cpu[0] / cpu[1], 2),
            "steps": len(times[0]),
        }
    return row


def _timed(step: Callable[[], None]) -> tuple[float, float]:
    started, worked = time.perf_counter(), time.process_time()
    step()
    return 1e3 * (time.perf_counter() - started), 1e3 * (time.process_time() - worked)


def _step(
    model: str, task: str, batch_size: int, precision: str, *, is_last: bool
) -> Callable[[], None]:
    torch.manual_seed(0)
    recipe = make_recipe(model=model, data="part-whole", batch_size=batch_size, precision=precision)
    image, n_classes = MODELS[model].image, MODELS[model].n_classes
    network = create_model(model).train(task == "train")
    if is_last:
        with_channels_last(network)
    pixels, labels = torch.rand(batch_size, *image), torch.randint(n_classes, (batch_size,))
    optimiser = make_optimiser(recipe, network.parameters())

    def step() -> None:
        half = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16")
        if task == "predict":
            with torch.no_grad(), half:
                network(pixels)
            return
        with half:
            out = network(pixels, labels)
            parts = loss_parts(recipe, out, Batch(pixels, labels), 0)
            loss = torch.stack(list(parts.values())).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*REPRESENTATIVES])
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=10.0, help="of a task of a model")
    given = parser.parse_args()
    keep_memory()
    rows = json.loads(RECORD.read_text(encoding="utf-8"))["rows"] if RECORD.is_file() else []
    for model in given.models:
        row = compare(
            model,
            batch_size=given.batch_size,
            precision=given.precision,
            seconds=given.seconds,
        )
        rows = [old for old in rows if (old["model"], old["precision"]) != (model, given.precision)]
        rows.append(row)
        print(model, given.precision, *(f"{task} {row[task]['times_as_fast']}×" for task in TASKS))
        print("   by CPU time", *(row[task]["times_as_fast_by_cpu_time"] for task in TASKS))
        record = {
            "what": "steps of two networks by turns, with kept memory: channels first and last; "
            "median wall and CPU milliseconds",
            "date": datetime.now(UTC).date().isoformat(),
            "environment": environment(),
            "rows": rows,
        }
        write_whole(RECORD, json.dumps(record, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
