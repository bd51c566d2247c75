"""What it costs to measure: all measurements of one forward pass against the pass alone.

OMP_NUM_THREADS=1 python benchmarks/measuring.py

`mitterreiter_5x16`, untrained, looks at part-whole images of 40×40. Batch by batch the plain pass
and the measured one take turns, and both are told in CPU seconds of one thread: `ratio` is the
measured pass, results included, over the plain one. `bytes` is what each measurement holds after so
many images, as pickle writes it: flat but for samples of 2,000 images and for different keys.
Writes benchmarks/records/measuring.json.
"""

import argparse
import json
import pickle
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchcaps.analysis import (
    MeasureFidelity,
    MeasureFixedPoint,
    Measurement,
    MeasureSelectivity,
    MeasureSeparation,
)
from torchcaps.analysis.by_name import TRACE_MEASUREMENTS
from torchcaps.data import Batch, PartWholeSpec, part_whole, shown_parts
from torchcaps.models import create_model
from torchcaps.tasks.decoding import decoder_of
from torchcaps.tasks.measurements import Shown
from torchcaps.train.folder.environment import environment

RECORD = Path(__file__).parent / "records" / "measuring.json"
MODEL, BATCH = "mitterreiter_5x16", 100


def parts(batch: Shown) -> torch.Tensor:
    return batch.shown


def all_of_one_pass(model: nn.Module) -> dict[str, Measurement]:
    return {
        **{name: kind() for name, kind in TRACE_MEASUREMENTS.items()},
        "fidelity": MeasureFidelity(parts),
        "fixed-point": MeasureFixedPoint(),
        "selectivity": MeasureSelectivity(parts),
        "separation": MeasureSeparation(decoder_of(model).seen),
    }


def measured(count: int, looks: int) -> dict[str, Any]:
    images = part_whole("test", count, spec=PartWholeSpec(size=40))
    shown = shown_parts(images.truth)
    torch.manual_seed(0)
    model = create_model(MODEL, image=images.image_shape, n_classes=10).eval()
    kinds = all_of_one_pass(model)
    seconds = dict.fromkeys(("plain", "with trace", *kinds, *(f"{n}: result" for n in kinds)), 0.0)
    held: dict[str, dict[int, int]] = {name: {} for name in kinds}

    def timed(name: str, work: Any) -> Any:
        started = time.process_time()
        found = work()
        seconds[name] += time.process_time() - started
        return found

    with torch.no_grad():
        model(images.pixels(torch.arange(BATCH)))
        for number, index in enumerate(torch.arange(count).split(BATCH)):
            plain: Batch = images.batch(index)
            batch = Shown(plain.pixels, plain.labels, shown[index])
            passes = {"plain": {}, "with trace": {"keep": "steps"}}
            # First one of them, then the other.
            for name in sorted(passes, reverse=bool(number % 2)):
                out = timed(name, partial(model, batch.pixels, **passes[name]))
                if name == "with trace":
                    for kind, each in kinds.items():
                        timed(kind, partial(each.update, out, batch))
            done = (number + 1) * BATCH
            if done % (count // looks) == 0:
                for kind, each in kinds.items():
                    held[kind][done] = len(pickle.dumps(each))
    for kind, each in kinds.items():
        timed(f"{kind}: result", each.result)
    together = sum(value for name, value in seconds.items() if name != "plain")
    return {
        "images": count,
        "ratio": round(together / seconds["plain"], 3),
        "cpu_seconds": {name: round(value, 3) for name, value in seconds.items()},
        "bytes": held,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--looks", type=int, default=5, help="How often bytes are counted.")
    parser.add_argument("--record", type=Path, default=RECORD)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = measured(asked.images, asked.looks)
    about = {
        "command": "OMP_NUM_THREADS=1 python benchmarks/measuring.py",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment(),
        "model": MODEL,
        "batch": BATCH,
    }
    asked.record.write_text(json.dumps({**about, **found}, indent=1) + "\n")
    print(f"ratio {found['ratio']}")


if __name__ == "__main__":
    main()
