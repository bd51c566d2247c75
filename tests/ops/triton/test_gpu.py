"""The laws on a GPU, with more sizes, windows and options than an interpreter has the time for."""

from itertools import product

import pytest
import torch

from contracts.form_laws import assert_close_in_single, assert_law
from contracts.forms import (
    FORMS,
    LARGE,
    WINDOWS,
    Case,
    leaves_of,
    may_be_given,
    route,
)
from ops.triton.test_kernels import SIZES, sized

pytestmark = pytest.mark.gpu
SHARED = list(product(("none", "type", "all"), ("vector", "matrix")))
ALL = may_be_given("dynamic", "triton")


def cases():
    for sharing, pose in SHARED:
        shorter = [each for each in FORMS["dynamic"].options if each.get("iterations", 3) < 4]
        for given, options in product(((), ALL), shorter):
            yield Case("dynamic", sharing, pose, None, given, options, n_in=12, n_out=5, d_out=4)
        for (n_out, d_in), window in product(((5, 9), (200, 16)), (None, *WINDOWS, LARGE)):
            sizes = {"batch": (5,), "n_in": 24, "n_out": n_out, "d_in": d_in}
            ways = product(("paper", "gritzman", "official"), ("window", "all"))
            for variant, compete in ways:
                options = {"variant": variant, "compete": compete, "variance_floor": 0.05}
                if window is not None or compete == "window":
                    given = ("vote_bias", "coordinates")
                    yield Case("em", sharing, pose, window, given, options, **sizes)
            sizes = sizes | {"n_in": 6}
            given, options = may_be_given("inverted", "triton"), {"scale": d_in**-0.5}
            yield Case("inverted", sharing, pose, window, given, options, **sizes)
            given = may_be_given("self_attention", "triton")
            options = {"squash": "exp"}
            yield Case("self_attention", sharing, pose, window, given, options, **sizes)


@pytest.mark.parametrize("case", [*cases()], ids=str)
def test_the_law(case, triton_device):
    assert_law("triton", case, leaves_of(case, torch.float32), triton_device)


@pytest.mark.parametrize("detach", ["none", "votes"])
@pytest.mark.parametrize(
    "sizes",
    [*SIZES, (128, 1152, 10, 8, 16), (6, 300, 200, 8, 16), (4, 64, 32, 16, 64), (70, 40, 9, 4, 4)],
    ids=str,
)
def test_sizes(sizes, detach, triton_device):
    case = sized(sizes, detach=detach)
    assert_close_in_single("triton", case, leaves_of(case, torch.float32), triton_device)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("sharing", "pose"), SHARED)
def test_half_precision(sharing, pose, dtype, triton_device):
    case = Case("dynamic", sharing, pose, None, ALL, {"iterations": 2})
    narrow = leaves_of(case, dtype)
    found = []
    for precision in (dtype, torch.float32):
        leaves = {name: x.to(precision) for name, x in narrow.items()}
        leaves = {name: x.to(triton_device).requires_grad_() for name, x in leaves.items()}
        (step,) = route("triton", case, leaves, "last").steps
        gradients = torch.autograd.grad(step.parents.pose.float().sum(), leaves.values())
        found.append((step.parents.pose, step.coupling, *gradients))
    for half, wide in zip(*found, strict=True):
        assert half.dtype == dtype
        # Gradients of parents and of votes are rounded on their way.
        torch.testing.assert_close(half.float(), wide, rtol=0.02, atol=0.02)
