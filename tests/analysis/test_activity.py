"""Capsule activity of three images, every number worked out on paper."""

import math

import pytest

from torchcaps.analysis import Thresholds, capsule_activity
from traces import capsules, even, network

# Eighths, so that sums and borders are exact: three images, four capsules.
PRIMARY = [
    [1.000, 0.250, 0.0, 0.125],
    [0.500, 0.125, 0.0, 0.125],
    [0.750, 0.000, 0.0, 0.125],
]
THRESHOLDS = Thresholds(active=0.25, dead_mean=0.125, dead_std=0.125)
CLASSES = [[0.25, 0.75], [0.25, 0.75], [0.25, 0.75]]


def measured():
    trace = network({"classes": even(3, 4, 2)}, {"primary": PRIMARY, "classes": CLASSES})
    return capsule_activity(trace, thresholds=THRESHOLDS)


def test_defaults():
    assert Thresholds() == (0.1, 0.05, 0.05)
    trace = network({"classes": even(3, 4, 2)})
    assert capsule_activity(trace).thresholds == Thresholds()


def test_the_lowest_layer_on_paper():
    row = measured().layers[0]
    assert (row.name, row.n) == ("primary", 4)
    # 1.375 + 0.75 + 0.875
    assert (row.cns, row.cnm) == (1.0, 0.25)
    # The first capsule thrice, the second once, at the border.
    assert row.cas == pytest.approx(4 / 3)
    assert row.car == pytest.approx(1 / 3)
    # The second and the fourth have a mean at the border.
    assert row.dead.tolist() == [False, True, True, True]
    assert (row.cds, row.cdr) == (3, 0.75)
    assert row.mean.tolist() == [0.75, 0.125, 0.0, 0.125]
    spread = math.sqrt(2 / 3)
    assert row.std.tolist() == pytest.approx([spread / 4, spread / 8, 0, 0])


def test_the_layer_above_on_paper():
    row = measured().layers[1]
    assert (row.name, row.n, row.cns, row.cnm) == ("classes", 2, 1.0, 0.5)
    assert (row.cas, row.car, row.cds, row.cdr) == (2, 1, 0, 0)


def test_sweep_on_paper():
    sweep = measured().sweep["primary"]
    # (factor, active an image, dead)
    expected = [(0.2, 8 / 3, 1), (0.5, 8 / 3, 1), (1.0, 4 / 3, 3), (2.0, 1.0, 3)]
    assert [each[0] for each in sweep] == [each[0] for each in expected]
    assert [each[1] for each in sweep] == pytest.approx([each[1] for each in expected])
    assert [each[2] for each in sweep] == [each[2] for each in expected]


@pytest.mark.parametrize(
    ("lengths", "dead"),
    [
        ([0.0, 0.25], True),  # mean and deviation at the border
        ([0.125, 0.125], True),
        ([0.0, 0.2501], False),  # both above
        ([0.1251, 0.1251], False),  # mean above
        ([0.0, 0.0, 0.0, 0.375], False),  # mean 0.094, deviation 0.162 above
    ],
)
def test_dead_means_at_most_both_thresholds(lengths, dead):
    column = [[length] for length in lengths]
    trace = network({"classes": even(len(column), 1, 2)}, {"primary": column})
    assert capsule_activity(trace, thresholds=THRESHOLDS).layers[0].dead.tolist() == [dead]


def test_active_means_at_least_the_threshold():
    column = [[0.25], [0.2499], [0.2501], [0.0]]
    trace = network({"classes": even(4, 1, 2)}, {"primary": column})
    assert capsule_activity(trace, thresholds=THRESHOLDS).layers[0].cas == 0.5


def test_capsules_without_activation_are_as_long_as_their_poses():
    (layer,) = network({"classes": even(3, 4, 2)}, {"primary": PRIMARY})
    bare = capsules(PRIMARY)._replace(activation=None)
    trace = (type(layer)(name=layer.name, children=bare, routed=layer.routed),)
    row = capsule_activity(trace, thresholds=THRESHOLDS).layers[0]
    assert row.cns == pytest.approx(1.0)
    assert row.mean.tolist() == pytest.approx([0.75, 0.125, 0.0, 0.125])
