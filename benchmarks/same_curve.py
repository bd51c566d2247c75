"""Does a network learn the same whichever way its routing is computed?

python benchmarks/same_curve.py DATA       # some minutes
python benchmarks/same_curve.py --tiny --out FILE    # that it runs, on made images

capsnet is trained on MNIST from one seed three times: plain routing and direct convolutions; native
kernels and Fourier convolution; and in float64, which tells how far two exact ways drift apart by
rounding alone. Writes benchmarks/records/same_curve.json and a picture beside it.
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from torchcaps.data import Images, load
from torchcaps.layers import use_backend
from torchcaps.ops import native
from torchcaps.train import Recipe, make_recipe
from torchcaps.train.batches import Batches
from torchcaps.train.environment import environment
from torchcaps.train.fit import initial_model
from torchcaps.train.loss import loss_parts
from torchcaps.train.optimiser import make_optimiser
from torchcaps.train.run import write_whole

RECORD = Path(__file__).parent / "records" / "same_curve.json"
# Name, backend, precision; the first is what others are compared with.
WAYS: list[tuple[str, Any, torch.dtype]] = [
    ("plain", "plain", torch.float32),
    ("native kernels, Fourier convolution", "native", torch.float32),
    ("plain, float64", "plain", torch.float64),
]


def curve(recipe: Recipe, images: Images, backend: Any, dtype: torch.dtype, steps: int) -> Any:
    """The loss of every step."""
    model = initial_model(recipe, images).train().to(dtype)
    use_backend(model, backend)
    optimiser = make_optimiser(recipe, model.parameters())
    losses: list[float] = []
    for batch in Batches(images, recipe.batch_size, seed=recipe.seed):
        batch = batch._replace(pixels=batch.pixels.to(dtype))
        out = model(batch.pixels, batch.labels)
        loss = torch.stack(list(loss_parts(recipe, out, batch, len(losses)).values())).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
        if len(losses) == steps:
            break
    return losses


def apart(one: list[float], other: list[float]) -> list[float]:
    return [abs(a - b) / abs(b) for a, b in zip(one, other, strict=True)]


def picture(curves: dict[str, list[float]]) -> Figure:
    figure = Figure(figsize=(7, 5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    (name, first), *others = curves.items()
    above.plot(first, label=name, color="0.7", linewidth=4)
    for (label, losses), dash in zip(others, ("-", ":"), strict=True):
        above.plot(losses, dash, label=label, linewidth=1.2)
        below.semilogy(apart(losses, first), dash, label=label, linewidth=1.2)
    above.set_ylabel("loss")
    above.set_title("capsnet on MNIST, one seed")
    above.legend()
    below.set_ylabel(f"apart from {name}")
    below.set_xlabel("step")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", help="the folder that holds the four files of MNIST")
    parser.add_argument("--tiny", action="store_true", help="three steps on made images")
    parser.add_argument("--out", type=Path, default=RECORD)
    given = parser.parse_args()
    if given.tiny and given.out == RECORD:
        parser.error("--tiny needs --out, so that it does not replace the record.")
    if not given.data and not given.tiny:
        parser.error("DATA is missing: the folder that holds the four files of MNIST.")
    data = "part-whole" if given.tiny else "mnist"
    recipe = make_recipe(model="capsnet", data=data, batch_size=4 if given.tiny else 48)
    images = (
        recipe.images("train", root=None)
        if given.tiny
        else load(data, split="train", root=given.data)
    )
    steps = 3 if given.tiny else 80
    curves = {name: curve(recipe, images, *how, steps) for name, *how in WAYS}
    first, *others = curves
    tail = slice(-max(1, steps // 5), None)
    record = {
        "what": "loss of every training step of one network by several ways of computing it, and "
        f"how far apart they are from {first!r}, relative",
        "tiny": given.tiny,
        "date": datetime.now(UTC).date().isoformat(),
        "environment": environment(),
        "native": native.available(),
        "recipe": recipe.model_dump(),
        "largest_apart_in_the_first_ten": {
            name: max(apart(curves[name], curves[first])[:10]) for name in others
        },
        "mean_of_the_last_fifth": {
            name: sum(losses[tail]) / len(losses[tail]) for name, losses in curves.items()
        },
        "losses": {name: [round(x, 6) for x in losses] for name, losses in curves.items()},
    }
    write_whole(given.out, json.dumps(record, ensure_ascii=False) + "\n")
    picture(curves).savefig(given.out.with_suffix(".png"), dpi=100)
    print(json.dumps({k: v for k, v in record.items() if k.startswith(("largest", "mean"))}))


if __name__ == "__main__":
    main()
