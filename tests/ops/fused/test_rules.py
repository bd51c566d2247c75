"""What a rule hands back is what autograd finds."""

import pytest
import torch

from torchcaps.ops.fused.rules import Agreement, Present


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


def check(rule, before, sums, leaves, places):
    query = rule.query(before, sums)
    of_query = torch.randn_like(query)
    expected = torch.autograd.grad(query, leaves, of_query)
    with torch.no_grad():
        found = rule.back(sums, of_query)
    for place, gradient in zip(places, expected, strict=True):
        torch.testing.assert_close(found[place], gradient, rtol=0, atol=1e-12)
