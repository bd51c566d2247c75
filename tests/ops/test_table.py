"""Every cell of the table is its loop."""

import pytest
import torch

from ops.table import CELLS, DTYPES, OPS, SOME, answer, layouts_of, results
from torchcaps import ops

# Of the largest number of a tensor, at least of one: a value, a gradient.
DOUBLE = 1e-10, 1e-10
# What docs/backends.md promises in single precision of the largest number, or so many times what
# the plain op is off. That has the same bars, and others where it sums thousands.
SINGLE, TIMES, SUMS = (2e-6, 2e-5), 3, (5e-6, 2e-4)
# What is as small beside the largest gradient, in double precision, is zero.
CANCELS = 1e-14
# Half precision is rounded once, gradients on their way too.
ROUNDINGS = 0.5, 4


def cells():
    for name, way, place in CELLS:
        for layout in layouts_of(place):
            mark = pytest.mark.drawn(8) if place == SOME else pytest.mark.slow
            words = "-".join((name, way, str(place), layout)).replace(" ", "_")
            yield pytest.param(name, way, place, layout, marks=mark, id=words)


def is_gradient(name):
    return name.startswith("of ")


def off(found, exact, least):
    """How far each is, as a part of its largest number, and that as a part of the largest of all:
    what hardly depends on anything has gradients of rounding errors. One that is zero, as that of
    the activation of an only child is, is a difference of terms as large as the others."""
    sizes = {name: float(x.abs().max()) for name, x in exact.items()}
    errors = {}
    for name, x in found.items():
        most = max(size for other, size in sizes.items() if is_gradient(other) == is_gradient(name))
        cancels = is_gradient(name) and sizes[name] < CANCELS * most
        size = max(sizes[name], most if cancels else 1e-6 * most, least)
        errors[name] = float((x.double() - exact[name]).abs().max()) / size
    return errors


def bars_of(cell, dtype, device, tolerance, exact):
    """Of values and of gradients."""
    if device.type != "cpu":
        return tolerance, tolerance
    if dtype == torch.float64:
        return DOUBLE
    name, way, place, layout = cell
    bars = SINGLE if place.is_small or way != "plain" else SUMS
    if way != "plain" or not place.is_small:
        # The plain op where it sums thousands: its loop in single precision.
        other = (
            results(name, "plain", place, layout, torch.float32)
            if way != "plain"
            else answer(name, place, layout == "expanded", torch.float32)
        )
        plain = off(other, exact, 1e-6)
        worst = [max(e for n, e in plain.items() if is_gradient(n) == of) for of in (False, True)]
        bars = [max(bar, TIMES * error) for bar, error in zip(bars, worst, strict=True)]
    rounding = 0 if dtype == torch.float32 else torch.finfo(dtype).eps
    return [bar + n * rounding for bar, n in zip(bars, ROUNDINGS, strict=True)]


@pytest.mark.parametrize(("name", "way", "place", "layout"), [*cells()])
def test_parity_with_its_loop(name, way, place, layout, device, dtype, tolerance):
    """On a CPU in every precision, elsewhere in the one that is asked for."""
    exact, wrong = answer(name, place, layout == "expanded"), []
    every = [DTYPES[each] for each in OPS[name].dtypes] if device.type == "cpu" else [dtype]
    for each in every:
        found = results(name, way, place, layout, each, device)
        assert {n: x.shape for n, x in found.items()} == {n: exact[n].shape for n in found}
        bars = bars_of((name, way, place, layout), each, device, tolerance, exact)
        for key, error in off(found, exact, 1.0 if each == torch.float64 else 1e-6).items():
            if not error <= bars[is_gradient(key)]:
                wrong.append(f"{key} in {each} by {error:.1e}, not {bars[is_gradient(key)]:.1e}")
    assert not wrong


def test_every_op_has_a_line():
    assert {name.split()[0] for name in OPS} == set(ops.__all__) - {"route", "spread_margin"}
