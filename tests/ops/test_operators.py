"""An operator of the dispatcher from functions of NamedTuples."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import pytest
import torch
from torch import Tensor

from error_text import text_of
from torchcaps.ops.operators import Asked, Gradients, Operator


class Inner(NamedTuple):
    x: Tensor
    how: Literal["plus", "minus"]
    y: Tensor | None
    powers: Sequence[int]
    dtype: torch.dtype


class Outer(NamedTuple):
    scale: float
    inner: Inner
    z: Tensor


class Found(NamedTuple):
    """scale x^power z ± y, and x z."""

    main: Tensor
    side: Tensor


def forward(given: Outer) -> Found:
    x, how, y, (power,), _ = given.inner
    main = given.scale * x**power * given.z
    sign = {"plus": 1, "minus": -1}[how]
    return Found(main if y is None else main + sign * y, x * given.z)


def backward(asked: Asked[Outer]) -> Gradients:
    SEEN.append(asked.needs)
    (x, how, _, (power,), _), z, scale = asked.given.inner, asked.given.z, asked.given.scale
    (side,), (of_main, of_side) = asked.saved, asked.gradients
    of_main, of_side = (torch.zeros_like(x) if g is None else g for g in (of_main, of_side))
    of_x = of_main * scale * power * x ** (power - 1) * z + of_side * z
    return [
        of_x,
        of_main * {"plus": 1, "minus": -1}[how],
        of_main * scale * x**power + of_side * side / z,
    ]


SEEN: list[tuple[bool, ...]] = []
once = Operator(
    "torchcaps::test_once",
    forward=forward,
    shapes=forward,
    backward=backward,
    saves=[1],
    what="the operator of a test",
    instead="do something else",
)
twice = Operator(
    "torchcaps::test_twice", forward=forward, shapes=forward, backward=backward, saves=[1]
)


def given(*tensors, how="minus", power=3):
    x, z, *y = tensors
    return Outer(2.0, Inner(x, how, y[0] if y else None, [power], x.dtype), z)


def numbers(count):
    return [torch.rand(3, dtype=torch.float64).requires_grad_() for _ in range(count)]


def test_the_schema_is_that_of_the_fields():
    inner = (
        "Tensor inner_x, str inner_how, Tensor? inner_y, SymInt[] inner_powers, "
        "ScalarType inner_dtype"
    )
    assert str(once.forward._schema) == (
        f"torchcaps::test_once(float scale, {inner}, Tensor z) -> (Tensor, Tensor)"
    )
    assert str(once.backward._schema) == (
        "torchcaps::test_once_backward(Tensor? of_main, Tensor? of_side, Tensor saved_side, "
        f"float scale, {inner}, Tensor z, bool[] needs) -> Tensor[]"
    )
    assert twice.backward is None


@pytest.mark.parametrize("operator", [once, twice])
@pytest.mark.parametrize("count", [2, 3])
def test_gradients(operator, count):
    tensors = numbers(count)
    assert torch.autograd.gradcheck(lambda *x: tuple(operator(given(*x))), tensors)
    flat = (2.0, tensors[0], "plus", None, [3], torch.float64, tensors[1])
    torch.library.opcheck(operator.forward, flat)


def test_only_what_somebody_needs_is_asked_for():
    x, z = numbers(2)
    SEEN.clear()
    once(given(x.detach(), z)).main.sum().backward()
    assert SEEN == [(False, False, True)]
    torch.testing.assert_close(z.grad, 2 * x.detach() ** 3)


def test_a_gradient_that_is_left_out_is_zero():
    def nothing(asked: Asked[Outer]) -> Gradients:
        return [None, None, None]

    operator = Operator(
        "torchcaps::test_nothing",
        forward=forward,
        shapes=forward,
        backward=nothing,
        what="nothing",
        instead="differentiate something",
    )
    x, z = numbers(2)
    operator(given(x, z)).main.sum().backward()
    assert torch.equal(x.grad, torch.zeros(3))


def test_gradients_of_gradients():
    x, z = numbers(2)
    (gradient,) = torch.autograd.grad(once(given(x, z)).main.sum(), x, create_graph=True)
    assert text_of(lambda: gradient.sum().backward()) == (
        "the operator of a test gives gradients, but no gradients of gradients; where these are "
        "needed, as by create_graph=True, do something else."
    )
    (gradient,) = torch.autograd.grad(twice(given(x, z)).main.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), x)
    torch.testing.assert_close(second, 12 * x * z)


def test_a_graph_and_its_gradients():
    torch._dynamo.reset()
    x, z = numbers(2)

    def main(x, z):
        return once(given(x, z)).main

    compiled = torch.compile(main, backend="aot_eager", fullgraph=True)
    compiled(x, z).sum().backward()
    torch.testing.assert_close(x.grad, 6 * x.detach() ** 2 * z.detach())
