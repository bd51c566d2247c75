"""Changes grow with every layer of three iterations, and pass two as they are."""

import json

import em_depth
import pytest
import torch

ROWS = json.loads(em_depth.RECORD.read_text())["rows"]


def grows(variant, iterations):
    return [
        row["a_layer"]
        for row in ROWS
        if (row["variant"], row["iterations"]) == (variant, iterations)
    ]


def test_the_record_says_what_the_pages_say():
    assert [len(grows("paper", n)) for n in (1, 2, 3)] == [len(em_depth.SEEDS)] * 3
    assert max(grows("paper", 1)) < 0.5
    assert all(0.95 < each < 1.1 for each in grows("paper", 2))
    assert all(1.3 < each < 1.45 for each in grows("gritzman", 2))
    assert min(grows("paper", 3)) > 2.4
    assert min(grows("gritzman", 3)) > 2.6


def test_growth_is_the_geometric_mean_between_hidden_layers():
    # Seven hidden layers, 3 to 192 in six steps of a factor 2, and the classes.
    assert em_depth.a_layer([3 * 2**n for n in range(7)] + [1.0]) == pytest.approx(2.0)


def test_one_iteration_couples_all_alike_and_three_hardly_two():
    images = torch.rand(20, 1, 20, 20, generator=torch.Generator().manual_seed(0))
    once, often = (em_depth.through(images, seed=0, iterations=n, variant="paper") for n in (1, 3))
    assert once["entropy"] == pytest.approx([1.0] * 8)
    assert max(often["entropy"][1:]) < 0.5
    assert em_depth.a_layer(once["change"]) < 0.6 < 1.5 < em_depth.a_layer(often["change"])
