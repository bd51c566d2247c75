"""Activity of capsules without activations; numbers on paper are in on_paper.toml."""

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


def test_capsules_without_activation_are_as_long_as_their_poses():
    (layer,) = network({"classes": even(3, 4, 2)}, {"primary": PRIMARY})
    bare = capsules(PRIMARY)._replace(activation=None)
    trace = (type(layer)(name=layer.name, children=bare, routed=layer.routed),)
    row = capsule_activity(trace, thresholds=THRESHOLDS).layers[0]
    assert row.cns == pytest.approx(1.0)
    assert row.mean.tolist() == pytest.approx([0.75, 0.125, 0.0, 0.125])
