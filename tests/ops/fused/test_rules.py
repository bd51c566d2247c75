"""What a rule hands back is what autograd finds."""

import math

import pytest
import torch

from torchcaps.ops.fused.rules import Agreement, Present, squashed
from torchcaps.ops.squashing import squash as g


def numbers(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("own", [(2, 3, 4, 5), (1, 1, 4, 5)], ids=["each", "all"])
@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("squash", ["hinton", "exp", "none"])
def test_agreement(squash, odd, own):
    before, sums, bias = numbers(2, 3, 4, 5), numbers(2, 3, 4, 5), numbers(*own)
    check(Agreement(squash, odd, bias), before, sums, (before, sums, bias), (0, 1, 3))


def test_present_parents():
    sums, weight, bias = numbers(2, 3, 4, 5), numbers(5), numbers(5)
    check(Present(0.3, weight, bias), None, sums, (sums, weight, bias), (1, 2, 3))
    check(Present(0.3, None, None), None, sums, (sums,), (1,))
    factor = numbers(1, 1, 1, 1)
    check(Present(0.3, factor, None), None, sums, (sums, factor), (1, 2))


@pytest.mark.parametrize("squash", ["hinton", "exp"])
@pytest.mark.parametrize("size", [0.0, 1e-5, 1e-3, 1.0])
def test_the_squash_of_one_number(squash, size):
    sums = (size * numbers(2, 3, 4, 1).detach()).requires_grad_()
    expected = torch.autograd.grad(g(sums, squash).sum(), sums)
    found = torch.autograd.grad(squashed(sums, squash).sum(), sums)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("squash", "power"),
    # The slope of a length is 2/s³ and e⁻ˢ; autograd finds up to 1e-7/s.
    [("hinton", -3), ("exp", -math.inf)],
)
def test_the_slope_of_one_long_number_keeps_its_digits(squash, power):
    s = torch.linspace(1e3, 1e5, 1000).unsqueeze(-1).requires_grad_()
    (found,) = torch.autograd.grad(squashed(s, squash).sum(), s)
    torch.testing.assert_close(found, 2 * s.detach() ** power, rtol=1e-5, atol=0)


def test_the_squash_of_one_number_takes_lanes_of_vmap():
    s = numbers(3, 4, 1)
    found = torch.func.vmap(lambda lane: squashed(lane, "exp"))(s)
    torch.testing.assert_close(found, g(s, "exp"), rtol=0, atol=0)


def check(rule, before, sums, leaves, places):
    query = rule.query(before, sums)
    of_query = torch.randn_like(query)
    expected = torch.autograd.grad(query, leaves, of_query)
    with torch.no_grad():
        found = rule.back(sums, of_query)
    for place, gradient in zip(places, expected, strict=True):
        torch.testing.assert_close(found[place], gradient, rtol=0, atol=1e-12)
