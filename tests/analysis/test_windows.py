"""The child in a slot of a window is the one that lies there, counted by hand and by loops."""

from dataclasses import replace

import torch

from torchcaps.analysis import child_of
from torchcaps.types import Window
from traces import even, network


def test_slots_on_paper():
    # A grid of 1 × 3 positions with 2 types: windows of 2 see (0, 1, 2, 3) and (2, 3, 4, 5).
    (layer,) = network({"conv": even(2, 6, 2)})
    layer = replace(layer, window=Window((1, 3, 2), (1, 2), (1, 1)))
    assert child_of((layer,))["conv"].tolist() == [[0, 1, 2, 3], [2, 3, 4, 5]]


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
