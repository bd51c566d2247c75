"""Images of a data set."""

from collections.abc import Sequence

import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps._checks import check_shape
from torchcaps._printable import printable
from torchcaps.errors import TorchcapsError
from torchcaps.viz.palette import WIDTH, cut_to, new_figure, say, show, styled

# Two colours on black, the second much lighter, so that they differ in print without colour too.
OF_TWO = torch.tensor([to_rgb("#3d8fd1"), to_rgb("#ffc36b")])
CAPTION = 0.16  # inches


@styled
def draw_samples(images: Tensor, captions: Sequence[str], *, columns: int = 6) -> Figure:
    """Draw images in rows with a caption each; two objects that came apart in two colours [gu2021]
    Fig. 2.

    Arguments:
        images: [k, c, h, w], or of two objects each [k, 2, c, h, w].
        captions: one an image.
        columns: images in a row.

    >>> draw_samples(batch.pixels, [test.class_names[k] for k in batch.labels])
    """
    if images.ndim == 5:
        tinted = images.float().mean(2)[:, :, None] * OF_TWO.to(images.device)[:, :, None, None]
        images = tinted.sum(1)
    check_shape("images", images, ("images", "channels", "height", "width"))
    if len(captions) != len(images) or not len(images):
        raise TorchcapsError(
            f"every image needs a caption, but there are {len(images)} images and "
            f"{len(captions)} captions."
        )
    side, rows = WIDTH / columns, -(-len(images) // columns)
    tall = (side + CAPTION) * rows
    figure = new_figure(tall)
    for at, (pixels, caption) in enumerate(zip(images, captions, strict=True)):
        row, column = divmod(at, columns)
        low = 1 - (row + 1) / rows
        place = (column + 0.04) / columns, low + CAPTION / tall
        box = *place, 0.92 / columns, 0.96 * side / tall
        show(figure.add_axes(box), pixels).axis("off")
        shown = cut_to(printable(caption, keep=""), 72 * 0.9 * side, 6.5)
        x, y = (column + 0.5) / columns, low + CAPTION / tall / 2
        say(figure, x, y, shown, ha="center", fontsize=6.5)
    return figure
