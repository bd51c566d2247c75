"""What becomes of a small change on its way through nine untrained layers with EM routing.

python benchmarks/em_depth.py FOLDER

FOLDER holds the four files of MNIST. The poses of primary capsules are moved by a thousandth of
their length, at random; what is measured is the relative move of each layer's poses over that of
the poses below the first. Beside it: the entropy of couplings, 1 where all parents share a child
alike, 0 where one has it. Writes benchmarks/records/em_depth.json and em_depth.svg beside it.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any, cast

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from torchcaps import Capsules, create_model
from torchcaps.data import load
from torchcaps.layers import DenseCapsules
from torchcaps.models import CapsuleNetwork
from torchcaps.train.environment import environment
from torchcaps.train.run import write_whole

RECORD = Path(__file__).parent / "records" / "em_depth.json"
IMAGES, SEEDS, MOVE = 100, (0, 1, 2), 1e-3
VARIANTS = ("paper", "gritzman")


@torch.no_grad()
def through(images: Tensor, *, seed: int, iterations: int, variant: str) -> dict[str, list[float]]:
    """A number a layer."""
    torch.manual_seed(seed)
    options = {"n_layers": 9, "bias": True, "decoder": False, "width": 32}
    image = cast(tuple[int, int, int], tuple(images.shape[1:]))
    model = create_model(
        "peer_deep_em", image=image, iterations=iterations, variant=variant, **options
    )
    assert isinstance(model, CapsuleNetwork)
    here: Capsules = model.primary(model.backbone(images))
    noise = torch.randn_like(here.pose)
    moved = here.pose + MOVE * noise * here.pose.norm() / noise.norm()
    there = Capsules(moved, moved.norm(dim=-1))
    change, entropy = [], []
    for layer in model.layers.values():
        assert isinstance(layer, DenseCapsules)
        routed = layer(here, keep="last")
        coupling = routed.steps[-1].coupling
        assert coupling is not None
        here, there = routed.parents, layer(there).parents
        change.append(float((there.pose - here.pose).norm() / here.pose.norm()) / MOVE)
        share = -(coupling * coupling.clamp_min(1e-12).log()).sum(-1).mean()
        entropy.append(float(share) / math.log(coupling.shape[-1]))
    return {"change": change, "entropy": entropy}


def a_layer(change: list[float]) -> float:
    """By what a change grows from a hidden layer to the next, in the geometric mean."""
    return (change[-2] / change[0]) ** (1 / (len(change) - 2))


def drawn(rows: list[dict[str, Any]], path: Path) -> None:
    figure, axes = plt.subplots(1, len(VARIANTS), figsize=(9, 3.5), sharey=True, dpi=100)
    for axis, variant in zip(axes, VARIANTS, strict=True):
        for row in (row for row in rows if row["variant"] == variant):
            label = f"{row['iterations']} iteration(s)" if row["seed"] == 0 else None
            colour = f"C{row['iterations'] - 1}"
            axis.semilogy(range(2, 10), row["change"], color=colour, label=label)
        axis.set(xlabel="layer", title=f'variant="{variant}"')
    axes[0].set_ylabel("relative change / change below")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", help="the folder that holds the four files of MNIST")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    images = load("mnist", split="train", root=asked.root).batch(torch.arange(IMAGES)).pixels
    rows = []
    for variant in VARIANTS:
        for iterations in (1, 2, 3):
            for seed in SEEDS:
                how = {"variant": variant, "iterations": iterations, "seed": seed}
                found = through(images[..., 4:-4, 4:-4], **how)
                grows = round(a_layer(found["change"]), 3)
                rounded = {key: [round(x, 5) for x in row] for key, row in found.items()}
                rows.append(how | rounded | {"a_layer": grows})
                print(how, grows, flush=True)
    record = {"what": str(__doc__).splitlines()[0], "environment": environment(), "rows": rows}
    write_whole(RECORD, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    drawn(rows, RECORD.with_suffix(".svg"))


if __name__ == "__main__":
    main()
