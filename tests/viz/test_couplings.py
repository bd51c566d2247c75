"""Mean couplings are drawn of a trace as of what was measured of it."""

import torch

import torchcaps as tc
from error_text import text_of
from torchcaps.viz import draw_mean_couplings, to_svg


def test_a_trace_is_drawn_as_its_numbers_are():
    model = tc.create_model("peer_sign_dynamic").eval()
    trace = model(torch.rand(4, 1, 1, 1), keep="last").trace
    dynamics, activity = tc.analysis.routing_dynamics(trace), tc.analysis.capsule_activity(trace)
    assert to_svg(draw_mean_couplings(trace)) == to_svg(draw_mean_couplings(dynamics, activity))
    assert "or the trace alone." in text_of(lambda: draw_mean_couplings(dynamics))
