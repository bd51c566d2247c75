"""The child in a slot of a window is the one that lies there, counted by loops."""

from dataclasses import replace

import torch

from torchcaps.analysis import child_of
from torchcaps.types import Window
from traces import even, network


def test_loops_over_rows_columns_and_types_agree():
    window = Window((5, 4, 3), (3, 2), (2, 1))
    (layer,) = network({"conv": even(1, 60, 2)})
    expected = [
        [
            ((2 * top + row) * 4 + left + column) * 3 + kind
            for row in range(3)
            for column in range(2)
            for kind in range(3)
        ]
        for top in range(2)
        for left in range(3)
    ]
    found = child_of((replace(layer, window=window),))["conv"]
    assert found.dtype == torch.int64
    assert found.tolist() == expected


def test_children_of_a_dense_layer_are_in_their_order():
    trace = network({"hidden": even(2, 3, 4), "classes": even(2, 4, 2)})
    found = {name: slots.tolist() for name, slots in child_of(trace).items()}
    assert found == {"hidden": [0, 1, 2], "classes": [0, 1, 2, 3]}
