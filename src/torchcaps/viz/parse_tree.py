"""The parse tree of one image, as [mitterreiter2023] Fig. 2 draws it, here with the root on top."""

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.figure import Figure
from torch import Tensor

from torchcaps._checks import check_shape
from torchcaps.analysis import capsule_layers, lengths
from torchcaps.analysis.trace import finite_coupling
from torchcaps.types import Trace
from torchcaps.viz.layered import (
    Row,
    called,
    check_index,
    draw_couplings,
    draw_legend,
    draw_rows,
    longest,
    strongest,
)
from torchcaps.viz.palette import MUTED, WIDTH, cut_to, new_figure, say, show, styled

# Points for a line beside the image.
NOTE = 185


@styled
def draw_parse_tree(
    trace: Trace,
    image: Tensor,
    *,
    index: int = 0,
    class_names: Sequence[str] = (),
    part_names: Sequence[str] = (),
) -> Figure:
    """Draw lengths as bars and couplings as lines for one image of a trace.

    The line to the parent that a capsule couples to most is drawn full, and its other lines are
    faded; a capsule that splits itself evenly has no strongest parent, and nothing fades. A capsule
    without length has no say, so all its lines fade. Of a layer with more capsules than fit, the
    longest are shown.

    Arguments:
        trace: what `model(images, keep="last").trace` holds.
        image: its pixels, [c, h, w].
        index: the number of the image in the trace.
        class_names: what the class capsules are called; by default numbers.
        part_names: what the lowest capsules are called; by default nothing.

    >>> draw_parse_tree(out.trace, images[0]).savefig("tree.svg")
    """
    check_index(trace, index)
    so = f"of a batch give images[index], with the same index={index}"
    check_shape("image", image, ("channels", "height", "width"), so)
    rows = []
    for name, capsules in capsule_layers(trace):
        length = lengths(capsules)[index].detach().float().cpu()
        shown = longest(length)
        rows.append(Row(name, shown, length[shown], len(length)))
    if class_names:
        class_names, top = called(class_names, rows[-1].n), rows[-1]
        rows[-1] = replace(top, labels=[class_names[k] for k in top.shown])
    if part_names:
        names = called(part_names, rows[0].n)
        rows[0] = replace(rows[0], labels=[names[k] for k in rows[0].shown])
    foot = 0.6 if part_names else 0.08
    band, height = 1.2, 0.92 * (len(rows) + 0.02 + foot)
    figure = new_figure(height + band)
    axes = figure.add_axes((0.18, band / (height + band), 0.8, height / (height + band)))
    for y, layer in enumerate(trace):
        coupling = finite_coupling(layer)[index].float()
        below, above = rows[y], rows[y + 1]
        # Of all parents: the strongest may not be among those that are shown.
        full = strongest(coupling)[below.shown][:, above.shown] & (below.length > 0)[:, None]
        coupling = coupling[below.shown][:, above.shown]
        draw_couplings(axes, y, below, above, coupling, full=full)
    full_bar = draw_rows(axes, rows)
    axes.set_ylim(-foot, len(rows) + 0.02)
    box = (0.02, 0.02, 1.0 / WIDTH, 1.0 / (height + band))
    show(figure.add_axes(box), image).axis("off")
    notes = figure.add_axes((0.32, 0.02, 0.66, 1.0 / (height + band)))
    notes.axis("off")
    notes.set(xlim=(0, 1), ylim=(0, 1))
    said = cut_to(_longest(rows[-1], class_names), NOTE, 8.5)
    say(notes, 0.0, 0.83, said, fontsize=8.5)
    note = f"bar: length, full is {full_bar:.3g}\nfaded: lines to any but the strongest parent"
    say(notes, 0.0, 0.5, note, color=MUTED)
    draw_legend(notes, 0.25)
    return figure


def _longest(top: Row, class_names: Sequence[str]) -> str:
    """Say which capsule is longest; without names nobody said that these are classes."""
    winner = int(top.shown[top.length.argmax()])
    if class_names:
        return f"longest class capsule: {class_names[winner]}"
    return f"longest capsule in {top.name}: {winner}"
