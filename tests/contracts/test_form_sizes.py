"""A form is as near to the plain op in double precision as the page of backends says, however many
capsules there are; that op is its loop, see ops/test_table.py."""

import pytest
import torch

from contracts.form_laws import Bars, assert_close_in_single
from contracts.forms import FORMS, PAIRS, Case, leaves_of, route

# What docs/backends.md promises in single precision; of the others 2e-6 and 2e-5.
PROMISED = {
    "distance": Bars(values=3, gradients=3, together=True),
    "self_attention": Bars(values=3, gradients=3, together=True),
    "em": Bars(True, 3, 4, together=True, rounding="millionth"),
}
SIZES = [(6, 10), (4, 300), (3, 1000), (2, 3000)]


def case_of(algorithm, n_in, n_out, **sizes):
    """Of few numbers but for the capsules."""
    sizes = {"batch": (3,), "d_in": 4, "d_out": 4} | sizes
    return Case(algorithm, n_in=n_in, n_out=n_out, options=FORMS[algorithm].alone, **sizes)


@pytest.mark.parametrize(("n_in", "n_out"), SIZES)
@pytest.mark.parametrize(("algorithm", "way"), PAIRS)
def test_many_parents_lose_no_digits(algorithm, way, n_in, n_out):
    case = case_of(algorithm, n_in, n_out)
    leaves = leaves_of(case, torch.float32)
    assert_close_in_single(way, case, leaves, bars=PROMISED.get(algorithm, Bars()))


@pytest.mark.parametrize(("algorithm", "way"), PAIRS)
def test_a_child_goes_to_many_parents_as_a_whole(algorithm, way):
    """In one line a sum of 3,000 exponentials was off by 1e-5 of it."""
    case = case_of(algorithm, 2, 3000)
    steps = route(way, case, leaves_of(case, torch.float32)).steps
    for coupling in (step.coupling for step in steps):
        total = coupling.double().sum(-1)
        torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-6)
