"""Mean couplings over many images with lengths and dead capsules [mitterreiter2023] Fig. 3."""

from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from torchcaps.analysis import (
    Activity,
    LayerActivity,
    RoutingDynamics,
    capsule_activity,
    routing_dynamics,
)
from torchcaps.analysis.dynamics import perfect_std
from torchcaps.errors import TorchcapsError
from torchcaps.types import Trace
from torchcaps.viz.layered import (
    Row,
    check_chain,
    check_dense,
    check_lines,
    draw_couplings,
    draw_legend,
    draw_rows,
    longest,
)
from torchcaps.viz.palette import MUTED, WARMTH, new_figure, say, styled


@styled
def draw_mean_couplings(trace: Trace | RoutingDynamics, activity: Activity | None = None) -> Figure:
    """Draw mean couplings as lines, warmer the more they change; mean lengths as bars with their
    spread.

    A dead capsule is red and crossed out.

    Arguments:
        trace: of a network over many images; or `routing_dynamics` of it, where it is known.
        activity: `capsule_activity` of the trace, beside its dynamics; not with a trace.

    >>> draw_mean_couplings(model(images, keep="last").trace)
    """
    dynamics, activity = _measured(trace, activity)
    rows = [_row(layer) for layer in activity.layers]
    band, height = 0.62, 0.92 * (len(rows) - 0.55)
    figure = new_figure(height + band)
    axes = figure.add_axes((0.18, band / (height + band), 0.8, height / (height + band)))
    for y, routed in enumerate(dynamics.layers):
        below, above = rows[y], rows[y + 1]
        mean = routed.mean[below.shown][:, above.shown]
        std = routed.std[below.shown][:, above.shown]
        # The spread of perfect routing to the parents that are alive, as in dyr; it needs two.
        perfect = perfect_std(max(routed.n_parents, 2))
        draw_couplings(axes, y, below, above, mean, warmth=std / perfect)
    full = draw_rows(axes, rows)
    axes.set_ylim(-0.08, len(rows) - 0.63)
    notes = figure.add_axes((0.18, 0.0, 0.8, band / (height + band)))
    notes.axis("off")
    notes.set(xlim=(0, 1), ylim=(0, 1))
    draw_legend(notes, 0.72)
    small = {"color": MUTED, "fontsize": 7}
    say(notes, -0.03, 0.6, f"full bar:\nlength {full:.3g}", ha="right", **small)
    bar = figure.colorbar(
        ScalarMappable(Normalize(0, 1), WARMTH),
        cax=notes.inset_axes((0.38, 0.2, 0.3, 0.11)),
        orientation="horizontal",
        ticks=[],
    )
    bar.outline.set_visible(False)
    say(notes, 0.36, 0.25, "same for every image", ha="right", **small)
    say(notes, 0.7, 0.25, "perfect routing", **small)
    return figure


def _row(layer: LayerActivity) -> Row:
    shown = longest(layer.mean)
    std, dead = layer.std[shown], layer.dead[shown]
    return Row(layer.name, shown, layer.mean[shown], layer.n, std=std, dead=dead)


def _measured(
    trace: Trace | RoutingDynamics, activity: Activity | None
) -> tuple[RoutingDynamics, Activity]:
    if not isinstance(trace, RoutingDynamics):
        check_dense(trace)
        return routing_dynamics(trace), capsule_activity(trace)
    if activity is None:
        raise TorchcapsError(
            "draw_mean_couplings needs a trace, or its dynamics and its activity; give "
            "capsule_activity(trace) as well, or the trace alone."
        )
    routed = [layer.name for layer in trace.layers]
    layers = [layer.name for layer in activity.layers[1:]]
    if routed != layers:
        raise TorchcapsError(
            f"dynamics and activity must be of one trace, but are of the routed layers "
            f"{', '.join(routed)} and {', '.join(layers)}; measure both of the same."
        )
    check_lines([layer.name for layer in trace.layers if layer.mean.ndim > 2])
    lowest = (activity.layers[0].name, 0, activity.layers[0].n)
    check_chain([lowest, *((layer.name, *layer.mean.shape) for layer in trace.layers)])
    return trace, activity
