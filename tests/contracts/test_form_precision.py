"""In which precision a form computes, and what it makes of numbers that are odd: half precision,
autocast, huge numbers and those that are none, on every backend alike."""

from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
import torch

from contracts.form_laws import assert_law
from contracts.forms import (
    FORMS,
    PAIRS,
    SMALL,
    Case,
    dtype_of,
    leaves_of,
    marked,
    may_be_given,
    numbers_of,
    ran_by,
    results_of,
    route,
    windows_of,
)

TWICE = {"iterations": 2}


def options_of(algorithm):
    few = {} if algorithm in ("self_attention", "uniform") else TWICE
    return FORMS[algorithm].alone | few


def few_cases():
    """Of each form dense and through windows, with all that may be given."""
    for algorithm, way in PAIRS:
        names, options = may_be_given(algorithm, way), options_of(algorithm)
        for window in windows_of(algorithm, way, (None, SMALL)):
            pose = "vector" if window is None else "matrix"
            yield way, Case(algorithm, "none", pose, window, names, options, n_in=3)


FEW = pytest.mark.parametrize(("way", "case"), marked(few_cases(), {"fused": 1, "native": 1}))
HALVES = pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
# Plain votes are rounded before they are routed, and logits of self-attention sum their errors.
# Under autocast, plain values.
FAR = {"inverted": 0.1}
ROUNDED = {"dynamic": 8, "distance": 16, "self_attention": 32}


def relative(found, expected):
    """Of numbers above one, as a part of the largest."""
    found, expected = found.double(), expected.double()
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1))


@FEW
@HALVES
def test_half_precision_is_rounded_once(way, case, half):
    leaves = leaves_of(case, half)
    assert ran_by(route, way, case, leaves) == way
    found = results_of(way, case, leaves)
    exact = results_of(way, case, {name: x.float() for name, x in leaves.items()})
    plain = results_of("plain", case, leaves)
    for name, x in found.items():
        assert (x.shape, x.dtype) == (plain[name].shape, plain[name].dtype), name
        if name.startswith("of "):
            # The gradients of the parents themselves are rounded on their way.
            assert (x.float() - exact[name]).abs().max() <= 0.03 * exact[name].abs().max(), name
            if case.algorithm in ("dynamic", "distance"):
                torch.testing.assert_close(x.float(), exact[name], rtol=0.02, atol=0.02)
            continue
        assert torch.equal(x, exact[name].to(x.dtype)), name
        if case.algorithm in ROUNDED:
            bar = ROUNDED[case.algorithm] * torch.finfo(half).eps
            assert relative(x, plain[name]) <= bar, name


@pytest.mark.parametrize(
    ("algorithm", "way", "options"),
    [
        *((*pair, {"couple": lambda c: c.flip(-1)}) for pair in PAIRS),
        *(("distance", way, {"detach": "iterations"}) for way in ("fused", "native")),
    ],
    ids=lambda x: "-".join(x) if isinstance(x, dict) else x,
)
@HALVES
def test_parents_are_made_before_couplings_are_rounded(algorithm, way, options, half):
    case = Case(algorithm, options=options_of(algorithm) | options)
    leaves = leaves_of(case, half)
    exact = numbers_of(route(way, case, {name: x.float() for name, x in leaves.items()}))
    for name, x in numbers_of(route(way, case, leaves)).items():
        assert x.dtype == (torch.float32 if name == "scale" else half), name
        assert torch.equal(x, exact[name].to(x.dtype)), name


@FEW
def test_autocast_gives_the_dtype_of_the_plain_op_and_the_numbers_of_float32(way, case):
    leaves = leaves_of(case, torch.float32)
    exact = results_of(way, case, leaves)
    with torch.autocast("cpu", torch.bfloat16):
        assert ran_by(route, way, case, leaves) == way
        found, plain = (results_of(each, case, leaves) for each in (way, "plain"))
    for name, x in found.items():
        assert x.dtype == plain[name].dtype, name
        if name.startswith("of "):
            assert (x - exact[name]).abs().max() <= 0.01 * exact[name].abs().max(), name
            continue
        assert torch.equal(x, exact[name].to(x.dtype)), name
        if case.algorithm != "em":
            assert relative(x, plain[name]) <= FAR.get(case.algorithm, 0.05), name


@pytest.mark.parametrize(("algorithm", "way"), PAIRS)
def test_double_precision_stays_under_autocast(algorithm, way):
    case = Case(algorithm, given=may_be_given(algorithm, way), options=options_of(algorithm))
    leaves = leaves_of(case, torch.float64)
    exact = results_of(way, case, leaves)
    with torch.autocast("cpu", torch.bfloat16):
        found = results_of(way, case, leaves)
    torch.testing.assert_close(found, exact, rtol=0, atol=0)


@FEW
def test_zero_votes_and_huge_ones_are_finite(way, case):
    for size in (0.0, 1e-20, 1e4):
        leaves = leaves_of(case._replace(given=()), torch.float32)
        for name in ("pose", "weight", "length"):
            if name in leaves:
                leaves[name] = leaves[name] * size
        leaves = {name: x.requires_grad_() for name, x in leaves.items()}
        pose = route(way, case, leaves, "last").parents.pose
        gradients = torch.autograd.grad(pose.sum(), leaves.values(), materialize_grads=True)
        assert all(x.isfinite().all() for x in (pose, *gradients))


@FEW
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_stays_in_its_sample(way, case, bad):
    leaves = leaves_of(case._replace(batch=(5,)), torch.float32)
    leaves["pose"][3, 1, 0] = bad
    leaves = {name: x.requires_grad_() for name, x in leaves.items()}
    numbers = numbers_of(route(way, case, leaves, "last"))
    numbers.pop("scale", None)  # of all samples
    (of_pose,) = torch.autograd.grad(numbers["pose"].sum(), leaves["pose"])
    for x in (*numbers.values(), of_pose):
        assert x[[0, 1, 2, 4]].isfinite().all()
    assert not numbers["pose"][3].isfinite().all()
    assert not of_pose[3].isfinite().all()


def broadcast():
    for algorithm, way in PAIRS:
        names = (*may_be_given(algorithm, way), *FORMS[algorithm].needs)
        for name, window in product(names, windows_of(algorithm, way, [None, SMALL])):
            if name not in ("norm_weight", "activation"):
                yield way, algorithm, name, window


@pytest.mark.parametrize(
    ("way", "algorithm", "name", "window"),
    marked(broadcast(), {"fused": 3, "native": 2}),
)
def test_parameters_broadcast_as_in_the_plain_op(way, algorithm, name, window):
    given = () if name in FORMS[algorithm].needs else (name,)
    if name == "norm_bias":
        given = ("norm_weight", "norm_bias")
    case = Case(algorithm, given=given, window=window, options=options_of(algorithm), batch=(2, 3))
    leaves = leaves_of(case, dtype_of(way))
    whole, lead = leaves[name], (2, 3) if window is None else (2, 3, 4)
    if name == "length":
        shapes = [(1,), (3, 1)] if window is None else []
    elif whole.ndim == 1:
        shapes = [(1,), ()]
    else:
        rows, columns = whole.shape
        shapes = [(columns,), (rows, 1)]
        if name not in ("vote_bias", "coordinates"):
            shapes += [(*lead, rows, columns), (1, *lead[1:], 1, columns)]
    for shape in shapes:
        assert_law(way, case, leaves | {name: torch.rand(shape).to(whole)})


@pytest.mark.parametrize(("algorithm", "way"), [pair for pair in PAIRS if pair[1] == "native"])
def test_two_python_threads_at_once(algorithm, way):
    case = Case(algorithm, batch=(24,), n_in=100, n_out=10, d_in=8, d_out=16)
    leaves = leaves_of(case, torch.float32)
    expected = results_of(way, case, leaves)
    with ThreadPoolExecutor(2) as workers:
        found = [*workers.map(lambda _: results_of(way, case, leaves), range(8))]
    for each in found:
        torch.testing.assert_close(each, expected, rtol=0, atol=0)
