"""How accuracy and entropy move as a network is pruned, or as couplings get more levels."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps._checks import check_choice, check_shape
from torchcaps._printable import printable
from torchcaps.errors import TorchcapsError
from torchcaps.viz.curves import draw_curves, draw_training
from torchcaps.viz.palette import INK, WIDTH, check_drawn, new_figure, show, styled

FIELDS = ("sparsity", "validation_accuracy", "entropy")


def draw_pruning(
    runs: Mapping[str, Sequence[Mapping[str, Any]]], *, against: str = "epoch"
) -> Figure:
    """Draw sparsity, validation accuracy and entropy by epoch, a line a run: [renzulli2025] Fig. 8,
    and Figs. 10 and 14 of runs that were pruned epoch by epoch and at once; or accuracy and entropy
    by sparsity.

    Arguments:
        runs: rows of metrics, as `Run.metrics()` gives them, by the name of the run.
        against: "epoch", or "sparsity".

    >>> draw_pruning({"iterative": run.metrics(), "SNIP": second.metrics()})
    """
    what = 'metrics by the names of their runs, {"mine": run.metrics()}'
    check_drawn("draw_pruning", runs, Mapping, what)
    for each in runs.values():
        check_drawn("draw_pruning", each, Sequence, what)
    check_choice("against", against, ("epoch", "sparsity"))
    if not runs:
        raise TorchcapsError(
            "draw_pruning draws a line for each run, but none came; give the metrics of one or "
            'more by their names: {"mine": run.metrics()}.'
        )
    for name, rows in runs.items():
        if not any("entropy" in row for row in rows):
            raise TorchcapsError(
                f"the metrics of {name} have no entropy, which is written for pruned networks "
                f"whose last routed layer has one parent for each class; name runs that were "
                f"pruned."
            )
    fields = [field for field in FIELDS if field != against]
    return draw_training(runs, fields=fields, against=against)


def draw_levels(rows: Sequence[tuple[int, float, float]]) -> Figure:
    """Draw accuracy and entropy against the number of levels that couplings are moved to
    [renzulli2025] Fig. 7.

    Arguments:
        rows: (levels, accuracy as a share, entropy in bit), one a grid.

    >>> draw_levels([(2, 0.91, 1.4), (11, 0.97, 3.2)])
    """
    check_drawn("draw_levels", rows, Sequence, "rows of (levels, accuracy, entropy)")
    panels = {
        title: {"": [(row[0], row[column]) for row in sorted(rows)]}
        for column, title in ((1, "accuracy"), (2, "entropy (bit)"))
    }
    return draw_curves(panels, x="levels", log=True)


@styled
def draw_saliency(images: Tensor, maps: Mapping[str, Tensor]) -> Figure:
    """Draw a row an image: the image, then for every network where the capsules of its answer lie,
    over the image [renzulli2025] Fig. 5. Each map is drawn as shares of its own largest value:
    where it lies can be compared, how strong it is cannot.

    Arguments:
        images: [k, c, h, w].
        maps: by the name of a network, what `analysis.saliency` gives, [k, h, w].

    >>> draw_saliency(images, {"before": before, "after pruning": after})
    """
    what = 'maps by the names of their networks, {"mine": analysis.saliency(...)}'
    check_shape("images", images, ("k", "c", "h", "w"))
    check_drawn("draw_saliency", maps, Mapping, what)
    for each in maps.values():
        check_drawn("draw_saliency", each, Tensor, what)
    if not len(images) or any(each.shape != images[:, 0].shape for each in maps.values()):
        shapes = {name: list(each.shape) for name, each in maps.items()}
        raise TorchcapsError(
            f"every network needs one map an image, of its size, {list(images[:, 0].shape)}, but "
            f"came {shapes}."
        )
    columns = len(maps) + 1
    cell = min(WIDTH / columns, 1.1)
    tall = cell * len(images) + 0.3
    figure = new_figure(tall)
    for k, pixels in enumerate(images):
        for column, name in enumerate(["image", *maps]):
            side = 0.94 * cell
            low = tall - 0.3 - (k + 1) * cell
            left = (WIDTH - columns * cell) / 2 + column * cell
            box = (left / WIDTH, low / tall, side / WIDTH, side / tall)
            axes = show(figure.add_axes(box), pixels)
            if column:
                heat = maps[name][k].detach().float().cpu()
                share = (heat / heat.max().clamp(min=torch.finfo(heat.dtype).tiny)).numpy()
                axes.imshow(share, cmap="inferno", vmin=0, vmax=1, alpha=0.55)
            if k == 0:
                axes.set_title(printable(name, keep=""), fontsize=7, color=INK, pad=3)
    return figure
