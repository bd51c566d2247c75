"""FLOPs of the Triton operators. That parents in two tiles are gone over twice is not counted."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from contracts.form_laws import cut
from contracts.forms import SMALL, Case, leaves_of, route

TWICE = {"iterations": 2}
SLOTS, DENSE, SEEN = 8, 2 * 6, 2 * 4 * 8  # children of all samples
NORM = ("norm_weight", "norm_bias")


@pytest.mark.parametrize(
    ("case", "how", "flops"),
    [
        # Votes twice; one iteration with an agreement and a sum.
        (Case("dynamic", options=TWICE), "whole", (2 * 4 + 2) * DENSE * 3),
        (Case("dynamic", options=TWICE), "tiled", (2 * 4 + 2) * DENSE * 3),
        (Case("inverted", window=SMALL, given=NORM, n_out=9), "whole", (2 * 4 + 2) * SEEN * 9),
        pytest.param(
            Case("inverted", window=SMALL, given=NORM, n_out=9),
            "tiled",
            (2 * 4 + 2) * SEEN * 9,
            marks=pytest.mark.slow,
        ),
        # T; votes, agreements and the sum.
        (Case("self_attention", given=("prior",)), "whole", (2 * 4 + 2) * DENSE * 3),
    ],
    ids=str,
)
def test_flops_are_those_of_the_algorithm(case, how, flops, monkeypatch):
    cut(monkeypatch, "triton", how)
    leaves = {name: x.requires_grad_() for name, x in leaves_of(case, torch.float32).items()}
    with FlopCounterMode(display=False) as counter:
        pose = route("triton", case, leaves, "none").parents.pose
        assert counter.get_total_flops() == 2 * case.d_out * flops
        pose.sum().backward()
    assert counter.get_total_flops() > 2 * 2 * case.d_out * flops


def test_flops_of_em_routing():
    case = Case("em", window=SMALL, options=TWICE, batch=(3,))
    leaves = {name: x.requires_grad_() for name, x in leaves_of(case, torch.float32).items()}
    products = 2 * (3 * 4) * SLOTS * 3 * 5 * 4
    with FlopCounterMode(display=False) as counter:
        pose = route("triton", case, leaves, "none").parents.pose
        # Votes are made for each moment, and for distances.
        assert counter.get_total_flops() == (2 + 1 + 2) * products
        pose.sum().backward()
    # Of both moments and of distances: votes again, and gradients of weights and of poses.
    assert counter.get_total_flops() == (5 + 3 + 3 + 3) * products
