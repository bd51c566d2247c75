"""Every routing on a GPU in float32, and in the form that stores no votes, gives what the plain op
gives on a processor in float64: values and gradients, with every option, dense and through windows.
"""

from itertools import product

import pytest
import torch

from contracts.form_laws import Bars, assert_close_in_single
from contracts.forms import FORMS, LARGE, ODD, Case, leaves_of, may_be_given

pytestmark = pytest.mark.gpu

# Not beyond four times the error that the plain op has on a processor in float32.
BARS = Bars(by_norm=True, values=4, gradients=4, together=True, rounding="millionth")
SIZES = {"batch": (3,), "n_in": 12, "n_out": 5}


def cases():
    for name, form in FORMS.items():
        for options, (sharing, pose, window) in product(
            form.options, [("none", "vector", None), ("type", "matrix", ODD)]
        ):
            if window is None and options.get("compete") == "all":
                continue
            options = form.alone | options
            yield Case(name, sharing, pose, window, may_be_given(name, "fused"), options, **SIZES)
        bare = form.alone | form.options[0]
        yield Case(name, "all", "matrix", LARGE, (), bare, batch=(4,), n_out=9, d_in=9)


@pytest.mark.parametrize("way", ["plain", "fused"])
@pytest.mark.parametrize("case", [*cases()], ids=str)
def test_a_routing_in_float32_is_the_plain_op_in_float64(case, way, device):
    assert_close_in_single(way, case, leaves_of(case, torch.float32), device, BARS)
