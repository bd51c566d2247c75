"""Routing against self-attention: what is counted has the exponents of the paper."""

import attention
import pytest


def test_a_tiny_run_has_the_exponents_of_the_paper():
    rows = attention.against_attention(n=(32, 64), d=(16, 32))
    fits = {(row["layer"], row["axis"]): row["exponents"] for row in rows}
    # n² d² of routing and d² of attention, exactly: neither has a bias.
    for place, slope in {
        ("routing", "n"): 2,
        ("routing", "d"): 2,
        ("attention", "n"): 0,
        ("attention", "d"): 2,
    }.items():
        assert fits[place]["parameters"] == pytest.approx(slope, abs=0.05)
    assert fits["routing", "n"]["flops"] == pytest.approx(2)
    for place in (("routing", "d"), ("attention", "n"), ("attention", "d")):
        assert 1 < fits[place]["flops"] < 2
    for row in rows:
        for point in row["points"]:
            # In bytes, a weight is four and its gradient as many.
            assert point["peak_mb"] * 2**20 >= 8 * point["parameters"]
            assert point["flops"] > 0
