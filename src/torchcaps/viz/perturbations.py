"""What a decoder draws as components of a class capsule move [sabour2017] Fig. 4."""

from collections.abc import Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps._checks import check_shape
from torchcaps.errors import TorchcapsError
from torchcaps.viz.palette import MUTED, WIDTH, new_figure, say, show, styled

# Where drawings begin, as a share of the width; inches above them.
FIRST, HEAD = 0.15, 0.5


@styled
def draw_perturbations(image: Tensor, drawn: Tensor, *, steps: Sequence[float]) -> Figure:
    """Draw a row a component, a column a step, and the image above.

    Arguments:
        image: what was shown, [c, h, w].
        drawn: what is drawn, [d, step, c, h, w].
        steps: what was added to the component of each row.

    >>> draw_perturbations(images[0], drawn, steps=(-0.25, 0.0, 0.25))
    """
    known = ("components", len(steps), "channels", "height", "width")
    check_shape("drawn", drawn, known, "the second axis is the steps")
    if not drawn.numel():
        raise TorchcapsError(
            f"a picture needs a component that moves by a step or more, but drawings came as "
            f"{list(drawn.shape)}; give steps=(-0.25, 0.0, 0.25), say, and draw for each."
        )
    size, _, _, height, width = drawn.shape
    cell = WIDTH * (1 - FIRST) / len(steps)
    tall = HEAD + size * cell * height / width
    figure = new_figure(tall)
    for d in range(size):
        # One picture a row, its drawings side by side.
        row = torch.cat(list(drawn[d]), -1)
        share = cell * height / width / tall
        low = 1 - HEAD / tall - (d + 1) * share
        show(figure.add_axes((FIRST, low, 1 - FIRST, share)), row).axis("off")
        say(figure, FIRST - 0.02, low + share / 2, f"{d}", ha="right", fontsize=7)
    top = 1 - HEAD / tall
    for k, step in enumerate(steps):
        x = FIRST + (k + 0.5) * (1 - FIRST) / len(steps)
        label = f"{step:+g}" if step else "as is"
        figure.text(x, top + 0.01, label, ha="center", va="bottom", fontsize=5.5, color=MUTED)
    side = 0.8 * HEAD
    box = (0.02, 1 - side / tall, side / WIDTH, 0.62 * HEAD / tall)
    show(figure.add_axes(box), image).axis("off")
    note = "left the image; below a row for each component that changes"
    say(figure, FIRST, 1 - 0.35 * HEAD / tall, note, fontsize=7)
    return figure
