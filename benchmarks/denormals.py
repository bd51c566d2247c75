"""How much longer a backward pass takes whose gradients a float32 holds only in part.

python benchmarks/denormals.py    # two minutes of one core

Gradients of a deep network at chance are nearer to zero than 1e-38. Here those of a network that
learns are made as small, by what its loss is multiplied by; by turns as `fit` trains, with such
numbers taken for zero, and with them as they are. CPU time, the least of three passes.
"""

import contextlib
import json
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

from torchcaps.models import create_model
from torchcaps.train.denormals import denormals_as_zero
from torchcaps.train.environment import environment
from torchcaps.train.run import write_whole

RECORD = Path(__file__).parent / "records" / "denormals.json"
FACTORS = (1.0, 1e-25, 1e-28, 1e-30, 1e-34)


def seconds(network: torch.nn.Module, images: torch.Tensor, factor: float) -> float:
    loss = network(images).scores.sum() * factor
    network.zero_grad()
    begun = time.process_time()
    loss.backward()
    return time.process_time() - begun


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = create_model("peer_deep_dynamic", n_layers=3, width=32, decoder=False)
    images = torch.rand(64, 1, 28, 28)
    rows = []
    for factor in FACTORS:
        least = [float("inf"), float("inf")]
        for _ in range(3):
            for k, context in enumerate((denormals_as_zero, contextlib.nullcontext)):
                with context():
                    least[k] = min(least[k], seconds(network, images, factor))
        zero, partly = (round(1000 * each, 1) for each in least)
        rows.append({"factor": factor, "ms_as_zero": zero, "ms_as_they_are": partly})
        print(f"loss times {factor:g}: {zero} ms as zero, {partly} ms as they are", flush=True)
    record = {
        "what": "backward pass of peer_deep_dynamic, three layers, width 32, 64 images, one thread",
        "date": datetime.now(UTC).date().isoformat(),
        "environment": environment(),
        "rows": rows,
    }
    write_whole(RECORD, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
