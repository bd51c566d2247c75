"""No capsule layer makes an infinity or a NaN under autocast, whatever its children and weights.

In bfloat16 always; in float16 wherever votes and the exact results fit, each by its name.
"""

import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from numeric.sizes import SIZES, scaled
from tables import beside
from torchcaps.layers import (
    ROUTINGS,
    AttentionCapsules,
    Conv3dCapsules,
    ConvCapsules,
    DenseCapsules,
    EMPrimaryCapsules,
    LayerNormPrimaryCapsules,
    PrimaryCapsules,
    make_routing,
)
from torchcaps.ops import conv3d_routing
from torchcaps.ops.routing.common import capsules
from torchcaps.ops.votes import seen_poses
from torchcaps.types import Capsules

EXACT, LARGEST = torch.float64, torch.finfo(torch.float16).max
# Of how many random sums of the parents the rounding is looked at: that of one may be small.
SUMS = 5
# Every routing with its parameters, and without where it may lack them.
OPTIONS = beside(__file__, "options.toml")


@st.composite
def cases(draw, routing):
    """What a layer and its children are made of."""
    dense, grid = draw(st.booleans()), draw(st.tuples(*[st.integers(1, 3)] * 3))
    options = {name: draw(st.sampled_from(of)) for name, of in OPTIONS.get(routing, {}).items()}
    if dense and routing == "em":
        options["compete"] = "window"
    weight = st.sampled_from(["zero", "subnormal", "mixture"]) | st.integers(-10, 0)
    return SimpleNamespace(
        routing=routing,
        options=options,
        dense=dense,
        sharing=draw(st.sampled_from(["none", "type", "all"])),
        vote_bias=draw(st.booleans()),
        coordinates=draw(st.booleans()),
        pose=draw(st.sampled_from(["vector", "matrix"])),
        grid=grid,
        n_out=draw(st.integers(1, 4)),
        kernel=draw(st.integers(1, min(grid[:2]))),
        stride=draw(st.integers(1, 2)),
        # Components of children and parents, or side of their matrices.
        sides=draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        # Of the poses, their activations, the weights.
        sizes=(draw(SIZES), draw(st.sampled_from(["zero", "subnormal", -3, 0])), draw(weight)),
        identical=draw(st.booleans()),
        # Whether children come from a layer under autocast too.
        in_half=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
    )


def made(case, dtype):
    """The layer in float32 and its children, the poses in float32 or rounded to the dtype."""
    torch.manual_seed(case.seed)
    d_in, d_out = case.sides
    if case.pose == "matrix":
        d_in = d_out = d_in**2
    common = {
        "d_in": d_in,
        "d_out": d_out,
        "pose": case.pose,
        "child_grid": case.grid,
        "vote_bias": case.vote_bias,
        "routing": make_routing(case.routing, **case.options),
    }
    n_in = math.prod(case.grid)
    if case.dense:
        # They fill two components of a vote.
        fit = d_out >= (4 if case.pose == "matrix" else 2)
        coordinates = case.coordinates and fit
        shape = {"n_in": n_in, "n_out": case.n_out, "sharing": case.sharing}
        layer = DenseCapsules(**shape, coordinates=coordinates, **common)
    else:
        strides = {"kernel": case.kernel, "stride": case.stride}
        layer = ConvCapsules(types=case.n_out, **strides, **common)
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
    """What a layer gave, and its gradients by the named leaves for random weights."""
    values = {name: x for name, x in parents._asdict().items() if x is not None}
    generator = torch.Generator().manual_seed(seed)
    # Rounded to half precision, so that every dtype has the same.
    weights = [
        torch.randn(x.shape, generator=generator).half().to(x.dtype) for x in values.values()
    ]
    found = torch.autograd.grad(
        [*values.values()], [*leaves.values()], weights, materialize_grads=True
    )
    return values | {f"of {name}": x for name, x in zip(leaves, found, strict=True)}


def leaves_of(layer, children):
    for x in children:
        if x is not None:
            x.requires_grad_()
    named = {f"children's {name}": x for name, x in children._asdict().items() if x is not None}
    # A prior is not trained where couplings are detached.
    trained = {name: x for name, x in layer.named_parameters() if x.requires_grad}
    return named | trained


def under_autocast(layer, children, dtype, seed):
    leaves = leaves_of(layer, children)
    with torch.autocast("cpu", dtype=dtype):
        parents = layer(children).parents
    # Outside, as torch asks: inside, the products of the backward pass would be rounded too.
    return numbers(parents, leaves, seed)


def rounded(exact):
    return exact + (exact.half().to(exact.dtype) - exact).detach()


def of_capsule_layer(layer, children):
    votes = rounded(layer.votes(children))
    asked = {"poses": seen_poses(layer._map(children))} if layer.routing._takes_poses else {}
    parents = layer.routing(votes, layer._activation(children), **asked).parents
    return [votes], layer._flat(parents)


def of_conv3d(layer, children):
    votes = rounded(layer.votes(children))
    options = {
        "parent_grid": layer.parent_grid,
        "iterations": layer.iterations,
        "bias": layer.bias,
        "squash_over": layer.squash_over,
    }
    return [votes], conv3d_routing(votes, **options).parents


def of_attention(layer, children):
    q, k, v = (
        rounded(layer._heads(children.pose @ weight.T))
        for weight in (layer.query, layer.key, layer.value)
    )
    attention = (q @ k.transpose(-1, -2) / (layer.d_in / layer.heads) ** 0.5).softmax(-1)
    mixed = rounded((attention @ v).transpose(-2, -3).flatten(-2))
    pose = rounded(mixed @ layer.output.T)
    return [q, k, v, mixed, pose], capsules(pose)


def of_primary(layer, features):
    """Its projections are what half precision holds."""
    held = []

    def hold(_module, _given, maps):
        held.append(rounded(maps))
        return held[-1]

    hooks = [x.register_forward_hook(hold) for x in layer.modules() if isinstance(x, nn.Conv2d)]
    parents = layer(features).parents
    for hook in hooks:
        hook.remove()
    return held, parents


def fits_float16(made, through, seed):
    """By name, where float16 has the exact result, that of float64, and room for what rounding in
    float32 leaves anywhere in it. LayerNorm amplifies the last bits of equal components. Of equal
    children the query of an attention learns nothing, and gets 1e-7 of a value times a key times a
    pose. What comes of a number that float16 does not have is not asked for."""
    runs = []
    for turn in range(SUMS):
        both = (in_precision(dtype, made, through, seed + turn) for dtype in (torch.float32, EXACT))
        runs.append(tuple(both))
    (single, exact), where = runs[0], {}
    for name in single.keys() & exact.keys():
        rounding = torch.stack([off(name, *run) for run in runs]).amax()
        where[name] = exact[name].abs() + rounding <= LARGEST
    return where


def in_precision(dtype, made, through, seed):
    """What a layer gives, by name, without what comes of a number that float16 does not have.
    `through` gives what it holds in half precision on its way, and its parents."""
    layer, children = made()
    layer.to(dtype)
    children = Capsules(*(None if x is None else x.to(dtype) for x in children))
    leaves = leaves_of(layer, children)
    held, parents = through(layer, children)
    inner = {f"held {n}": x for n, x in enumerate(held)}
    found = numbers(parents, leaves | inner, seed)
    if not all((x.abs() <= LARGEST).all() for x in held):
        return {}
    # A pose and a weight get theirs through what is held.
    lost = not all((found.pop(f"of {name}").abs() <= LARGEST).all() for name in inner)
    return {name: x.to(EXACT) for name, x in found.items() if not (lost and name.startswith("of "))}


def off(name, single, exact):
    """How far float32 is off at most, where float16 has the exact result."""
    if name not in single or name not in exact:
        return torch.zeros((), dtype=EXACT)
    fits = exact[name].abs() <= LARGEST
    return torch.where(fits, (single[name] - exact[name]).abs(), 0).amax()


def check(made, through, seed):
    """`made` makes the layer and its children anew, in the dtype that it is given."""
    found = under_autocast(*made(torch.bfloat16), torch.bfloat16, seed)
    assert not [name for name, x in found.items() if not x.isfinite().all()]
    found = under_autocast(*made(torch.float16), torch.float16, seed)
    if all(x.isfinite().all() for x in found.values()):
        return
    where = fits_float16(lambda: made(torch.float16), through, seed)
    assert not [name for name, fits in where.items() if not found[name][fits].isfinite().all()]


def test_every_routing_has_options_to_draw_from():
    missing = set(ROUTINGS) - set(OPTIONS)
    assert not missing, f"options.toml has no table for {missing}: it is drawn bare"


@pytest.mark.slow
@pytest.mark.parametrize("routing", sorted(ROUTINGS))
def test_values_and_gradients_are_finite_under_autocast(routing):
    @settings(max_examples=200)
    @given(case=cases(routing))
    def every(case):
        check(lambda dtype: made(case, dtype), of_capsule_layer, case.seed)

    every()


@st.composite
def conv3d_layers(draw):
    grid = draw(st.tuples(*[st.integers(1, 3)] * 3))
    return partial(
        Conv3dCapsules,
        child_grid=grid,
        d_in=draw(st.integers(1, 4)),
        types=draw(st.integers(1, 3)),
        d_out=draw(st.integers(1, 4)),
        iterations=draw(st.integers(1, 4)),
        bias=draw(st.booleans()),
        squash_over=draw(st.sampled_from(["map", "pose"])),
    )


@st.composite
def attention_layers(draw):
    heads = draw(st.integers(1, 3))
    n, d = draw(st.integers(1, 5)), heads * draw(st.integers(1, 3))
    return partial(AttentionCapsules, n=n, d=d, heads=heads)


class OnMaps(nn.Module):
    """Primary capsules under the interface of the layers above them: their one child is the feature
    map."""

    n_in = 1

    def __init__(self, kind, size, kernel, types, d_out, **options):
        super().__init__()
        self.size, self.d_in = size, math.prod(size)
        projection = nn.Conv2d(size[0], types * d_out, kernel)
        if kind is PrimaryCapsules:
            self.primary = kind(projection, d_out=d_out, **options)
        else:
            active = nn.Conv2d(size[0], types, kernel) if options.pop("active", True) else None
            self.primary = kind(projection, active, d_out=d_out, **options)

    def forward(self, features):
        maps = features.pose.unflatten(-1, self.size).squeeze(1)
        return SimpleNamespace(parents=self.primary(maps))


@st.composite
def primary_layers(draw):
    kind, options = draw(
        st.sampled_from(
            [
                *((PrimaryCapsules, {"squash": squash}) for squash in ("hinton", "exp", "none")),
                *((LayerNormPrimaryCapsules, {"active": active}) for active in (False, True)),
                *((EMPrimaryCapsules, {"offset": offset}) for offset in (0.0, -1.0)),
            ]
        )
    )
    side = draw(st.integers(1, 3))
    size = (draw(st.integers(1, 3)), side, draw(st.integers(side, 4)))
    kernel, types, d_out = (draw(st.integers(1, largest)) for largest in (side, 3, 4))
    return partial(OnMaps, kind, size, kernel, types, d_out, **options)


@st.composite
def others(draw, layers):
    """How to make a layer that is no `CapsuleLayer`, and the sizes of its children and weights."""
    weight = st.sampled_from(["zero", "subnormal", "mixture"]) | st.integers(-10, 0)
    return SimpleNamespace(
        create=draw(layers),
        sizes=(draw(SIZES), draw(weight)),
        identical=draw(st.booleans()),
        in_half=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
    )


def made_other(case, dtype):
    torch.manual_seed(case.seed)
    layer = case.create()
    of_poses, of_weights = case.sizes
    with torch.no_grad():
        for parameter in layer.parameters():
            noise = torch.randn_like(parameter, dtype=torch.float64)
            parameter.copy_(scaled(noise, of_weights, dtype).to(dtype))
    noise = torch.randn(2, 1 if case.identical else layer.n_in, layer.d_in, dtype=torch.float64)
    pose = scaled(noise, of_poses, dtype).expand(2, layer.n_in, layer.d_in).to(dtype).clone()
    return layer, Capsules(pose if case.in_half else pose.float())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "through"),
    [
        (conv3d_layers(), of_conv3d),
        (attention_layers(), of_attention),
        (primary_layers(), of_primary),
    ],
    ids=["conv3d", "attention", "primary"],
)
def test_layers_without_a_vote_map_are_finite_under_autocast(layers, through):
    @settings(max_examples=200)
    @given(case=others(layers))
    def every(case):
        check(lambda dtype: made_other(case, dtype), through, case.seed)

    every()
