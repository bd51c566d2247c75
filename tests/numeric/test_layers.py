"""No capsule layer makes an infinity or a NaN under autocast, whatever its children and weights.

In bfloat16 always; in float16 wherever votes, results and gradients fit.
"""

import math
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numeric.sizes import SIZES, scaled
from torchcaps.layers import ROUTINGS, ConvCapsules, DenseCapsules, make_routing
from torchcaps.types import Capsules

# Every routing with its parameters, and without where it may lack them.
OPTIONS = {
    "distance": {"scale": ["sample", "batch"], "bias": [False, True]},
    "dynamic": {"prior": ["zero", "learned"], "bias": [False, True, "odd"]},
    "em": {"variant": ["paper", "official", "gritzman"], "compete": ["window", "all"]},
    "inverted": {
        "layer_norm": [True, False],
        "activations": [False, True],
        "start": ["none", "learned"],
    },
    "self_attention": {"prior": ["zero", "learned"]},
    "uniform": {"normalise": ["softmax", "mean"], "bias": [False, True]},
}


class Case(NamedTuple):
    """What hypothesis draws; a layer and its children are made of it."""

    routing: str
    options: dict[str, Any]
    dense: bool
    pose: str
    grid: tuple[int, int, int]
    n_out: int
    kernel: int
    # Components of children and parents, or side of their matrices.
    sides: tuple[int, int]
    # Of the poses, their activations, the weights.
    sizes: tuple[str | int, str | int, str | int]
    identical: bool
    # Whether children come from a layer under autocast too.
    in_half: bool
    seed: int


@st.composite
def cases(draw, routing):
    dense, grid = draw(st.booleans()), draw(st.tuples(*[st.integers(1, 3)] * 3))
    options = {name: draw(st.sampled_from(of)) for name, of in OPTIONS.get(routing, {}).items()}
    if dense and routing == "em":
        options["compete"] = "window"
    weight = st.sampled_from(["zero", "subnormal", "mixture"]) | st.integers(-10, 0)
    return Case(
        routing,
        options,
        dense,
        draw(st.sampled_from(["vector", "matrix"])),
        grid,
        draw(st.integers(1, 4)),
        draw(st.integers(1, min(grid[:2]))),
        draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        (draw(SIZES), draw(st.sampled_from(["zero", "subnormal", -3, 0])), draw(weight)),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.integers(0, 2**16)),
    )


def made(case, dtype):
    """The layer in float32 and its children, the poses in float32 or rounded to the dtype."""
    torch.manual_seed(case.seed)
    d_in, d_out = case.sides
    if case.pose == "matrix":
        d_in = d_out = d_in**2
    common = {"d_in": d_in, "d_out": d_out, "pose": case.pose}
    common["routing"] = make_routing(case.routing, **case.options)
    n_in = math.prod(case.grid)
    if case.dense:
        layer = DenseCapsules(n_in=n_in, n_out=case.n_out, **common)
    else:
        layer = ConvCapsules(child_grid=case.grid, types=case.n_out, kernel=case.kernel, **common)
    of_poses, of_activations, of_weights = case.sizes
    noise = torch.randn_like(layer.weight, dtype=torch.float64)
    with torch.no_grad():
        # Rounded, so that autocast has nothing left to round.
        layer.weight.copy_(scaled(noise, of_weights, dtype).to(dtype))
    noise = torch.randn(2, 1 if case.identical else n_in, d_in, dtype=torch.float64)
    pose = scaled(noise, of_poses, dtype).expand(2, n_in, d_in).to(dtype).clone()
    noise = torch.rand(2, n_in, dtype=torch.float64)
    activation = scaled(noise, of_activations, dtype).to(dtype)
    if not case.in_half:
        pose, activation = pose.float(), activation.float()
    return layer, Capsules(pose, activation)


def numbers(parents, leaves, seed):
    """What a layer gave, and its gradients by the leaves for random weights."""
    values = [x for x in parents if x is not None]
    generator = torch.Generator().manual_seed(seed)
    # Rounded to half precision, so that every dtype has the same.
    weights = [torch.randn(x.shape, generator=generator).half().to(x.dtype) for x in values]
    return [*values, *torch.autograd.grad(values, leaves, weights, materialize_grads=True)]


def under_autocast(case, dtype):
    layer, children = made(case, dtype)
    children = Capsules(*(x.requires_grad_() for x in children))
    with torch.autocast("cpu", dtype=dtype):
        parents = layer(children).parents
    # Outside, as torch asks: inside, the products of the backward pass would be rounded too.
    return numbers(parents, [*children, *layer.parameters()], case.seed)


def fits_float16(case):
    """Whether float16 has the votes, all that comes of them, and every gradient, by float32 and by
    float64: they differ where LayerNorm amplifies the last bits of equal components."""
    largest = torch.finfo(torch.float16).max
    for dtype in (torch.float32, torch.float64):
        layer, children = made(case, torch.float16)
        layer.to(dtype)
        children = Capsules(*(x.to(dtype).requires_grad_() for x in children))
        exact = layer.votes(children)
        votes = exact + (exact.half().to(dtype) - exact).detach()
        parents = layer.routing(votes, layer._activation(children)).parents
        found = numbers(parents, [votes, *children, *layer.parameters()], case.seed)
        if not all((x.abs() <= largest).all() for x in (votes, *found)):
            return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("routing", sorted(ROUTINGS))
def test_values_and_gradients_are_finite_under_autocast(routing):
    @settings(max_examples=200)
    @given(case=cases(routing))
    def check(case):
        assert all(x.isfinite().all() for x in under_autocast(case, torch.bfloat16))
        finite = all(x.isfinite().all() for x in under_autocast(case, torch.float16))
        assert finite or not fits_float16(case)

    check()
