"""How many parse trees each class has, and how its couplings are distributed [renzulli2025]."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from torchcaps.analysis import CouplingHistogram, Couplings, Keys
from torchcaps.analysis.trace import check_classes
from torchcaps.errors import TorchcapsError, short
from torchcaps.viz.layered import called
from torchcaps.viz.palette import (
    COLOURS,
    INK,
    MUTED,
    PAPER,
    check_drawn,
    cut_to,
    in_legend,
    inner_axes,
    new_figure,
    say,
    styled,
)

# Points beside a bar for the name of its class.
NAME = 52
# Some colours are one in grey. Four dashes and five colours meet again after twenty lines.
HATCHES, DASHES = ("", "////", "....", "xxxx", "----"), ("-", "--", ":", "-.")


@styled
def draw_keys(keys: Keys | Mapping[str, Keys], *, class_names: Sequence[str] = ()) -> Figure:
    """Draw a bar a class: the entropy of its trees, and in grey what it would be had every image
    its own tree; beside it the number of trees [renzulli2025] Fig. 9. Of several networks the bars
    of a class lie below each other.

    Arguments:
        keys: what `MeasureKeys` found, or that of several networks by their names.
        class_names: in the order of the classes.

    >>> draw_keys(keys, class_names=test.class_names)
    """
    found: dict[str, Any] = {**keys} if isinstance(keys, Mapping) and keys else {"": keys}
    for each in found.values():
        check_drawn("draw_keys", each, Keys, "what analysis.MeasureKeys found")
    rows = [each.classes for each in found.values()]
    names = called(class_names, len(rows[0])) if class_names else [row.name for row in rows[0]]
    if any(len(each) != len(names) for each in rows) or len(rows) > len(COLOURS):
        raise TorchcapsError(
            f"the trees of 1 to {len(COLOURS)} networks of the same classes stand side by side, "
            f"but {len(rows)} networks came, of {' and '.join(str(len(each)) for each in rows)} "
            f"classes."
        )
    names = [cut_to(name, NAME, 7.5) for name in names]
    high = 0.62 / len(rows)
    head = 0.15 + 0.2 * (len(rows) > 1)
    figure = new_figure((0.1 + 0.14 * len(rows)) * len(names) + 0.6 + head)
    # Room for the bars, and right of them for "10000 trees of 10000 images".
    axes = inner_axes(figure, 0.2, 0.45, 0.4, head)
    looks = zip(COLOURS, HATCHES, strict=True)
    shown = zip(found.items(), looks, strict=False)
    for at, ((network, each), (colour, hatch)) in enumerate(shown):
        middle = 0.31 - (at + 0.5) * high
        places = [len(names) - 1 - k + middle for k in range(len(names))]
        axes.barh(places, [row.bound for row in each.classes], height=high, color="#e6eaee")
        entropies = [row.entropy for row in each.classes]
        look: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": PAPER, "lw": 0}
        axes.barh(places, entropies, height=0.9 * high, label=in_legend(network), **look)
        for y, row in zip(places, each.classes, strict=True):
            trees = "tree" if row.keys == 1 else "trees"
            images = "image" if row.images == 1 else "images"
            said = f"{row.keys} {trees} of {row.images} {images}"
            beside = axes.get_yaxis_transform()
            say(axes, 1.04, y, said, transform=beside, color=INK, fontsize=7, clip_on=False)
    if len(rows) > 1:
        where: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.18, 1), "ncols": 3}
        handles = [bar[0] for bar in axes.containers[1::2]]
        figure.legend(handles, [*found], fontsize=7, frameon=False, **where)
    axes.set_yticks(range(len(names)), names[::-1], fontsize=7.5)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlabel("entropy of the trees in bit (grey: a tree an image)", fontsize=7.5)
    axes.tick_params(length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


@styled
def draw_couplings_histogram(
    *found: tuple[str, Couplings], classes: Sequence[int] | None = None
) -> Figure:
    """Draw histograms of the couplings of each routed layer [renzulli2025] Fig. 13, or of all
    children of the last layer to each of some classes, over the images with this answer (Fig. 12).
    Counts are on a logarithmic axis; each network has a colour and dashes of its own.

    Arguments:
        found: name of a network, and what `MeasureCouplings` found; the same layers in each.
        classes: their numbers, for a histogram of each; left out, there is one a layer.

    >>> draw_couplings_histogram(("dense", before), ("pruned", after), classes=range(10))
    """
    if not found:
        raise TorchcapsError(
            "a histogram of couplings is of one network or more, but none came; give each as "
            "(name, what MeasureCouplings found)."
        )
    what = "pairs of a name and what analysis.MeasureCouplings found"
    for pair in found:
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        check_drawn("draw_couplings_histogram", pair[1] if is_pair else pair, Couplings, what)
    rows = _of_layers(found) if classes is None else _of_classes(found, classes)
    height = 1.05 * len(rows) + 0.45
    figure = new_figure(height)
    for k, (title, histograms) in enumerate(rows):
        low = (0.42 + 1.05 * (len(rows) - 1 - k)) / height
        axes = figure.add_axes((0.2, low, 0.77, 0.8 / height))
        for (network, _), each, style, colour in zip(
            found, histograms, cycle(DASHES), cycle(COLOURS), strict=False
        ):
            share = each.counts.double() / max(int(each.counts.sum()), 1)
            edges = [b / len(share) for b in range(len(share) + 1)]
            axes.stairs(
                share.numpy(), edges, color=colour, ls=style, lw=1.2, label=in_legend(network)
            )
        axes.set_yscale("log")
        # Powers would be set as formulas, which no text of ours is.
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlim(0, 1)
        axes.set_title(title, fontsize=7.5, loc="left", pad=2)
        axes.tick_params(length=2, labelsize=7, labelbottom=k == len(rows) - 1)
        axes.spines[["top", "right"]].set_visible(False)
        if k == 0 and len(found) > 1:
            axes.legend(fontsize=6.5, frameon=False)
    figure.text(0.585, 0.05 / height, "coupling", ha="center", fontsize=7.5, color=INK)
    say(figure, 0.005, 0.5, "share of couplings", rotation=90, fontsize=7, color=MUTED)
    return figure


# Title and the histogram of each network, from the top.
Rows = list[tuple[str, list[CouplingHistogram]]]


def _of_layers(found: Sequence[tuple[str, Couplings]]) -> Rows:
    of_each = [[layer.name for layer in couplings.layers] for _, couplings in found]
    layers = of_each[0]
    for (network, _), names in zip(found, of_each, strict=True):
        if names != layers:
            raise TorchcapsError(
                f"networks are compared layer by layer, {', '.join(layers)} as in "
                f"{short(found[0][0])}, but {short(network)} has {', '.join(names)}; draw networks "
                f"of other layers apart."
            )
    return [
        (layers[k], [couplings.layers[k] for _, couplings in found])
        for k in reversed(range(len(layers)))
    ]


def _of_classes(found: Sequence[tuple[str, Couplings]], classes: Sequence[int]) -> Rows:
    check_classes(classes)
    rows: Rows = []
    for number in classes:
        row = []
        for network, couplings in found:
            answered = {each.name: each for each in couplings.classes}
            if str(number) not in answered:
                raise TorchcapsError(
                    f"couplings of a class are those of images with this answer, but for "
                    f"{short(network)} no image has the answer {number}; draw classes that it "
                    f"answers: {', '.join(answered)}."
                )
            row.append(answered[str(number)])
        rows.append((f"class {number}", row))
    return rows
