"""Polarisation on paper: none, whole, between, by iteration, and where it is not defined."""

import math

import pytest
import torch

from torchcaps.analysis import MeasurePolarisation, polarisation
from torchcaps.analysis.trace import last_coupling
from traces import even, network, recoupled, switching


def measured(*traces):
    measurement = MeasurePolarisation()
    for trace in traces:
        measurement.add(trace)
    return measurement.result()


def test_one_row_on_paper():
    share = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64)
    entropy = -sum(p * math.log(p) for p in (0.7, 0.2, 0.1))
    assert polarisation(share).item() == pytest.approx(1 - entropy / math.log(3), abs=1e-15)


def test_the_t_score_is_of_the_last_iteration_and_over_layers():
    halves = torch.tensor([[[0.5, 0.5, 0, 0]]]).expand(3, 3, 4)
    lower, upper = network({"hidden": halves, "classes": switching(3, 4)[:, :1].expand(3, 4, 4)})
    upper = recoupled(upper, even(3, 4, 4), last_coupling(upper))
    # Half of log 4 below, one parent a child above, whatever came before.
    assert measured((lower, upper)).t_score == pytest.approx((0.5 + 1) / 2)
    one_parent = network({"hidden": halves, "classes": torch.ones(3, 4, 1)})
    assert measured(one_parent).t_score == pytest.approx(0.5)


def test_a_row_for_every_kept_iteration():
    (layer,) = network({"classes": switching(3, 4)})
    rows = measured((recoupled(layer, even(3, 3, 4), last_coupling(layer)),)).steps
    assert [(row.name, row.iteration) for row in rows] == [("classes", 1), ("classes", 2)]
    assert [row.strongest for row in rows] == [0.25, 1]
