"""Mean couplings are drawn of a trace as of what was measured of it."""

import torch

import torchcaps as tc
from torchcaps.viz import draw_mean_couplings, to_svg
from torchcaps.viz.palette import WARMTH
from traces import network, switching


def test_a_trace_is_drawn_as_its_numbers_are():
    model = tc.create_model("peer_sign_dynamic").eval()
    trace = model(torch.rand(4, 1, 1, 1), keep="last").trace
    dynamics, activity = tc.analysis.routing_dynamics(trace), tc.analysis.capsule_activity(trace)
    assert to_svg(draw_mean_couplings(trace)) == to_svg(draw_mean_couplings(dynamics, activity))


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
