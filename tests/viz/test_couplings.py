"""Mean couplings are drawn of a trace as of what was measured of it."""

from dataclasses import replace

import torch

import torchcaps as tc
from error_text import text_of
from torchcaps import analysis
from torchcaps.types import Window
from torchcaps.viz import draw_backtracked, draw_mean_couplings, draw_parse_tree, to_svg
from torchcaps.viz.palette import WARMTH
from traces import network, switching


def test_a_trace_is_drawn_as_its_numbers_are():
    model = tc.create_model("peer_sign_dynamic").eval()
    trace = model(torch.rand(4, 1, 1, 1), keep="last").trace
    dynamics, activity = tc.analysis.routing_dynamics(trace), tc.analysis.capsule_activity(trace)
    assert to_svg(draw_mean_couplings(trace)) == to_svg(draw_mean_couplings(dynamics, activity))
    assert "or the trace alone." in text_of(lambda: draw_mean_couplings(dynamics))


def measured(trace):
    return analysis.routing_dynamics(trace), analysis.capsule_activity(trace)


def test_dynamics_and_activity_are_of_one_trace():
    small = network({"classes": switching(2, 2)})
    deep = network({"hidden": switching(2, 4), "classes": switching(2, 2, n_in=4)})
    dynamics, _ = measured(deep)
    assert text_of(lambda: draw_mean_couplings(dynamics, measured(small)[1])) == (
        "dynamics and activity must be of one trace, but are of the routed layers hidden, classes "
        "and classes; measure both of the same."
    )


def test_measured_windows_are_no_lines():
    window = Window((2, 2, 1), (2, 2), (1, 1))
    (layer,) = network({"classes": torch.full((2, 4, 3), 1 / 3)})
    (step,) = layer.routed.steps
    steps = (step._replace(coupling=step.coupling.unsqueeze(1)),)
    trace = (replace(layer, routed=layer.routed._replace(steps=steps), window=window),)
    assert text_of(lambda: draw_mean_couplings(*measured(trace))) == (
        "lines are drawn where every child votes for every parent, but classes looks through "
        "windows; analysis.tree_pixels shows the tree of such a network in the image."
    )


def test_layers_that_do_not_lead_to_each_other_are_told():
    """It was an IndexError: of four parents below, the third and fourth have no line upwards."""
    (low,) = network({"low": switching(2, 4)})
    (high,) = network({"high": switching(2, 2, n_in=3)})
    said = (
        "lines are drawn between layers that lead to each other, but high has 3 children and low, "
        "the layer before it in the trace, has 4 parents, so it reads something else; draw it "
        "alone, from a trace of one layer."
    )
    image = torch.zeros(1, 4, 4)
    assert text_of(lambda: draw_parse_tree((low, high), image)) == said
    assert text_of(lambda: draw_backtracked((low, high))) == said
    assert text_of(lambda: draw_mean_couplings((low, high))) == said
    assert text_of(lambda: draw_mean_couplings(*measured((low, high)))) == said
    draw_parse_tree((high,), image)
    draw_mean_couplings((high,))


def test_the_warm_end_is_perfect_routing_among_the_parents_that_are_alive():
    """As dyr has it: a child that turns from 0.75 to 0.25 between the two living parents of four
    is half way."""
    turning = torch.tensor([[[0.75, 0.25, 0.0, 0.0]], [[0.25, 0.75, 0.0, 0.0]]])
    lengths = torch.tensor([[0.5, 0.5, 0.0, 0.0]] * 2)
    trace = network({"classes": turning}, {"classes": lengths})
    (layer,) = tc.analysis.routing_dynamics(trace).layers
    assert (layer.n_parents, layer.dyr) == (2, 0.5)
    (lines,) = draw_mean_couplings(trace).axes[0].collections
    assert {tuple(each[:3]) for each in lines.get_colors()} == {WARMTH(0.5)[:3], WARMTH(0.0)[:3]}


def test_a_single_living_parent_is_drawn():
    """Perfect routing to one parent would never change, and nothing can be measured by it."""
    trace = network({"classes": switching(2, 2)}, {"classes": torch.tensor([[0.5, 0.0]] * 2)})
    (lines,) = draw_mean_couplings(trace).axes[0].collections
    assert {tuple(each[:3]) for each in lines.get_colors()} == {WARMTH(1.0)[:3]}
