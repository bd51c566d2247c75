"""How far poses of classes still move when a trained network routes on and on [tsai2020] §4.1.

All couplings of all iterations are kept, 140 MB an image of the networks of this paper, and fifty
iterations take seconds; so a seeded sample of 200 images is looked at, a few at once.
"""

from collections.abc import Callable

import torch

from torchcaps.analysis import MeasureFixedPoint
from torchcaps.data import Images, sample_of
from torchcaps.types import Output

# The last is from iteration 50 to 51.
STEPS = range(1, 51)
SAMPLE, BATCH = 200, 4


@torch.no_grad()
def fixed_point_of(network: Callable[..., Output], images: Images) -> dict[str, float]:
    """The relative change of the poses of classes in each step, in the median over images, and that
    of the last by itself."""
    measurement = MeasureFixedPoint(sample=SAMPLE)
    for part in sample_of(images, SAMPLE).split(BATCH):
        pixels = images.batch(part).pixels
        out = network(pixels, iterations=STEPS[-1] + 1, keep="steps")
        measurement.add(out.trace[-1:], pixels)
    by_step = {row.iteration: row.median for row in measurement.result().steps}
    values = {f"fixed_point_distance.{t}": median for t, median in by_step.items()}
    last = by_step.get(STEPS[-1])
    return values if last is None else {**values, "fixed_point_distance": last}
