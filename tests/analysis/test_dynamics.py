"""Routing dynamics on paper: perfect, frozen and partial routing, with and without the dead."""

import json
import math
from dataclasses import replace

import pytest
import torch

from torchcaps.analysis import routing_dynamics
from torchcaps.analysis.dynamics import perfect_std
from torchcaps.types import Capsules, LayerTrace, Routed, Step, Window
from traces import even, network, switching


def measured(coupling, lengths=None, **options):
    (row,) = routing_dynamics(network({"classes": coupling}, lengths), **options).layers
    return row


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("n", range(2, 33))
def test_perfect_routing_is_one(n, times):
    row = measured(switching(n, n).repeat(times, 1, 1))
    assert row.dyr == pytest.approx(1, abs=1e-15)
    assert row.dys == pytest.approx(n, rel=1e-15)
    # Of every child to every parent; §4.1 prints 0.3 for ten.
    perfect = torch.full((3, n), math.sqrt((1 - 1 / n) / n), dtype=torch.float64)
    torch.testing.assert_close(row.std, perfect, rtol=0, atol=1e-15)
    assert (row.n_parents, row.n_children) == (n, 3)
    assert (row.strongest, row.even) == (1, 1 / n)
    constant = measured(even(n * times, 3, n))
    assert (constant.dyr, constant.dys) == (0, 0)


# A child that switches evenly between m of 10 parents.
@pytest.mark.parametrize(("used", "dys"), [(1, 0.0), (2, 10 / 3), (3, 4.7140452), (10, 10.0)])
def test_switching_between_some_of_ten_parents(used, dys):
    # std of one used parent: sqrt((1/m)(1 − 1/m)), m of them; of perfect routing: 0.3
    # Twice over, because one image shows no dynamics.
    assert measured(switching(used, 10).repeat(2, 1, 1)).dys == pytest.approx(dys, abs=1e-7)
    assert dys == pytest.approx(used * math.sqrt((1 - 1 / used) / used) / 0.3, abs=1e-7)


@pytest.mark.parametrize("coupling", [even(4, 3, 5), switching(1, 5).repeat(4, 1, 1)])
def test_frozen_is_zero(coupling):
    row = measured(coupling)
    assert (row.dyr, row.dys) == (0, 0)


def test_means_and_deviations_of_each_pair():
    # One child over two images: 0.75 and 0.25 to the first parent.
    row = measured([[[0.75, 0.25]], [[0.25, 0.75]]])
    assert row.mean.tolist() == [[0.5, 0.5]]
    assert row.coupling_std == 0.25
    assert row.std.tolist() == [[0.25, 0.25]]
    # 0.25 of the 0.5 of perfect routing
    assert (row.dyr, row.dys) == (0.5, 1.0)
    assert (row.strongest, row.even) == (0.75, 0.5)


def test_the_favourite_has_its_share_where_couplings_sum_to_anything():
    """Of self-attention with a prior it got 389 % of a child."""
    (layer,) = network({"classes": [[[3.0, 1.0, -1.0, 3.0]], [[5.0, 5.0, 5.0, 5.0]]]})
    (row,) = routing_dynamics((replace(layer, normalised_over="none"),)).layers
    assert row.strongest == pytest.approx((3 / 8 + 1 / 4) / 2)
    assert row.even == 0.25


DEAD_ABOVE = {"classes": [[0.5, 0.5, 0.0, 0.0]] * 2}


def test_dead_parents_do_not_count():
    coupling = switching(2, 4)
    row = measured(coupling, DEAD_ABOVE)
    assert row.n_parents == 2
    assert (row.dyr, row.dys) == (1, 2)
    kept = measured(coupling, DEAD_ABOVE, drop_dead_parents=False)
    # (2 · 0.5 + 2 · 0) / 4 of sqrt(0.75 / 4)
    assert kept.n_parents == 4
    assert kept.dyr == pytest.approx(0.25 / math.sqrt(0.1875), abs=1e-15)


def test_couplings_are_not_renormalised():
    # Half of every child goes to a dead parent; the rest switches perfectly.
    coupling = torch.full((2, 3, 3), 0.5)
    coupling[:, :, :2] = switching(2, 2) / 2
    row = measured(coupling, {"classes": [[0.5, 0.5, 0.0]] * 2})
    assert (row.n_parents, row.dyr) == (2, 0.5)


def test_dead_children_leave_the_mean():
    # The first child switches perfectly, the second never changes and is dead.
    coupling = torch.tensor([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]])
    dead_below = {"primary": [[0.5, 0.0]] * 2}
    row = measured(coupling, dead_below)
    assert (row.n_children, row.dyr) == (1, 1)
    kept = measured(coupling, dead_below, drop_dead_children=False)
    assert (kept.n_children, kept.dyr) == (2, 0.5)


@pytest.mark.parametrize(
    ("lengths", "parents", "children"),
    [
        ({"classes": [[0.5, 0.0]] * 2}, 1, 3),
        ({"classes": [[0.0, 0.0]] * 2}, 0, 3),
        ({"primary": [[0.0, 0.0, 0.0]] * 2}, 2, 0),
    ],
    ids=["one-parent", "no-parent", "no-child"],
)
def test_no_number_where_there_is_nothing_to_judge(lengths, parents, children):
    dynamics = routing_dynamics(network({"classes": switching(2, 2)}, lengths))
    (row,) = dynamics.layers
    assert (row.n_parents, row.n_children) == (parents, children)
    assert row.dyr is None
    assert row.dys is None
    (written,) = json.loads(dynamics.to_json())["layers"]
    assert written["dyr"] is None
    assert written["dys"] is None


def test_one_row_a_layer_from_the_bottom_up():
    dynamics = routing_dynamics(network({"hidden": switching(2, 2), "classes": even(2, 2, 3)}))
    assert [(row.name, row.dyr) for row in dynamics.layers] == [("hidden", 1), ("classes", 0)]
    assert dynamics.images == 2


def test_an_even_split_over_children_is_one_over_children():
    # Couplings of a mean: those of each parent sum to one over its 4 children.
    (layer,) = network({"classes": torch.full((2, 4, 3), 1 / 4)})
    (row,) = routing_dynamics((replace(layer, normalised_over="children"),)).layers
    assert (row.even, row.strongest) == (1 / 4, 1 / 4)


def test_the_favourite_of_the_dead_does_not_count():
    # Child 0 gives itself wholly to parent 0; three dead children split evenly.
    coupling = even(2, 4, 4)
    coupling[:, 0] = torch.tensor([1.0, 0, 0, 0])
    length = torch.zeros(2, 4)
    length[:, 0] = 0.5
    assert measured(coupling, {"primary": length}).strongest == 1


def windowed(dead_parent=False):
    """One child a position of a 2×2 grid, two parents at each of the 2×1 windows of 1×2 slots."""
    window = Window((2, 2, 1), (1, 2), (1, 1))
    coupling = torch.zeros(2, 2, 2, 2, dtype=torch.float64)  # [k, p, i, j]
    coupling[0, 0, :, 0] = coupling[1, 0, :, 1] = 1  # Window 0 switches, window 1 does not.
    coupling[:, 1, :, 0] = 1
    lengths = torch.full((2, 4), 0.5, dtype=torch.float64)
    if dead_parent:
        lengths[:, 1] = 0
    parents = Capsules(lengths.unsqueeze(-1), lengths)
    children = Capsules(torch.ones(2, 4, 1, dtype=torch.float64))
    routed = Routed(parents, (Step(children, coupling, parents),))
    return (LayerTrace("conv", children, routed, window=window),)


def test_windows_are_means_over_slots():
    (layer,) = routing_dynamics(windowed()).layers
    # Two of four slots are perfect, two are frozen.
    assert (layer.dyr, layer.dys) == pytest.approx((0.5, 1.0))
    assert (layer.n_children, layer.n_parents, layer.even) == (4, 4, 0.5)
    assert layer.mean.shape == (2, 2, 2)


def test_a_window_with_one_living_parent_has_no_routing():
    (layer,) = routing_dynamics(windowed(dead_parent=True)).layers
    assert layer.dyr == pytest.approx(0)
    assert layer.n_parents == 3


def test_the_sweep_has_other_thresholds():
    """Parents of 0.02, 0.04 and 0.5, and an image-dependent tree among the first two alone."""
    coupling = torch.zeros(2, 3, 3)
    coupling[0, :, 0] = coupling[1, :, 1] = 1
    lengths = torch.tensor([[0.02, 0.04, 0.5]]).expand(2, -1)
    row = measured(coupling, {"classes": lengths})
    assert (row.n_parents, row.dyr) == (1, None)
    by_factor = {factor: rest for factor, *rest in row.sweep}
    assert [*by_factor] == [0.2, 0.5, 1.0, 2.0]
    # From 0.01 all three count, from 0.025 two, of which one never changes.
    three, two = perfect_std(3), perfect_std(2)
    assert by_factor[0.2] == [3, pytest.approx(1 / 3 / three), pytest.approx(1 / three)]
    assert by_factor[0.5] == [2, pytest.approx(1 / 4 / two), pytest.approx(1 / 2 / two)]
    assert by_factor[1.0] == by_factor[2.0] == [1, None, None]
