"""Every routing as a module hands its options and its parameters to its op."""

import math
from functools import partial

import pytest
import torch

from layers.routing.bound import N_IN, VOTES, D, assert_equal, bound, random_parameters
from torchcaps import ops
from torchcaps.layers import (
    DistanceRouting,
    DynamicRouting,
    EMRouting,
    InvertedRouting,
    SelfAttentionRouting,
    UniformRouting,
)

BETAS = ("beta_a", "beta_u")
COMMON = {"iterations": 2, "squash": "exp", "detach": "votes"}
INVERTED = {"iterations": 3, "lambda_": 0.3}
# The module, options that it has as its op has them, others of its own, the parameters it hands on,
# and options of the op that make another result.
CASES = [
    (
        DynamicRouting,
        COMMON | {"leaky": True, "agreement": 0.3},
        {"prior": "learned", "bias": True},
        ("prior", "bias"),
        [{"iterations": 3}, {"leaky": False}, {"squash": "hinton"}, {"agreement": 1.0}],
    ),
    *(
        (
            DistanceRouting,
            COMMON,
            {"bias": bias},
            ("bias",),
            [{"iterations": 3}, {"squash": "hinton"}, {"scale": "batch"}],
        )
        for bias in (True, False)
    ),
    *(
        (
            EMRouting,
            {"iterations": 2, "variant": variant, "lambda_": 0.3, "variance_floor": 0.01},
            {},
            BETAS,
            [{"iterations": 3}, {"lambda_": 0.6}, {"variance_floor": 1.0}],
        )
        for variant in ("paper", "official", "gritzman")
    ),
    *(
        (InvertedRouting, INVERTED, own | {"start": start, "scaled": True}, ("start", *betas), [])
        for start in ("none", "random", "learned")
        for own, betas in (
            ({}, ()),
            ({"layer_norm": False}, ()),
            ({"activations": True}, BETAS),
            ({"activations": True, "layer_norm": False}, BETAS),
        )
    ),
    *(
        (SelfAttentionRouting, {"squash": squash}, {"prior": prior}, ("prior",), [])
        for squash in ("exp", "hinton")
        for prior in ("learned", "zero")
    ),
    *(
        (UniformRouting, {"normalise": over, "squash": "exp"}, {"bias": bias}, ("bias",), [])
        for over in ("softmax", "mean")
        for bias in (True, False)
    ),
]
CALLED = {DistanceRouting: "distance", DynamicRouting: "dynamic", EMRouting: "em"}
CALLED |= {InvertedRouting: "inverted", SelfAttentionRouting: "self_attention"}
CALLED |= {UniformRouting: "uniform"}


@pytest.mark.parametrize(("kind", "given", "own", "names", "changes"), CASES, ids=str)
def test_every_option_and_parameter_reaches_the_op(kind, given, own, names, changes):
    votes, activation = torch.randn(VOTES), torch.rand(3, N_IN)
    routing = random_parameters(bound(kind(**given, **own)))
    handed = {name: getattr(routing, name) for name in names} | given
    if "prior" in handed and kind is SelfAttentionRouting:
        handed["bias"] = handed.pop("prior")
    if kind in (DistanceRouting, EMRouting) or own.get("activations"):
        handed["activation"] = activation
    if kind is InvertedRouting:
        handed["scale"] = 1 / math.sqrt(D)
        handed["norm"] = routing.norm and (routing.norm.weight, routing.norm.bias)
    op = partial(getattr(ops, f"{CALLED[kind]}_routing"), votes)
    expected = op(**handed, keep="steps")
    assert_equal(routing(votes, activation, keep="steps"), expected)
    if kind is InvertedRouting:
        assert routing.gives_activations == own.get("activations", False)
        parents = None
        for step in expected.steps:
            our_step = routing.step(votes, activation, parents)
            assert torch.equal(our_step.coupling, step.coupling)
            parents = our_step.parents
        assert torch.equal(parents.pose, expected.parents.pose)
    for changed in changes:
        other = op(**handed | changed).parents
        assert not torch.equal(other.activation, expected.parents.activation)


@pytest.mark.parametrize(
    ("make", "parameters", "over"),
    [
        (DynamicRouting, {}, "parents"),
        (partial(DynamicRouting, prior="learned"), {"prior": (5, 4)}, "parents"),
        (partial(DynamicRouting, bias=True), {"bias": (4, 2)}, "parents"),
        (DistanceRouting, {}, "parents"),
        (partial(DistanceRouting, bias=True), {"bias": (4, 2)}, "parents"),
        (SelfAttentionRouting, {"prior": (5, 4)}, "none"),
        (partial(SelfAttentionRouting, prior="zero"), {}, "parents"),
        (UniformRouting, {}, "parents"),
        (partial(UniformRouting, bias=True), {"bias": (4, 2)}, "parents"),
        (partial(UniformRouting, normalise="mean"), {}, "children"),
        (EMRouting, {"beta_a": (4,), "beta_u": (4,)}, "parents"),
        (partial(InvertedRouting, layer_norm=False), {}, "parents"),
    ],
)
def test_parameters_exist_exactly_when_asked(make, parameters, over):
    routing = bound(make())
    found = dict(routing.named_parameters())
    assert {name: tuple(p.shape) for name, p in found.items()} == parameters
    assert routing.normalised_over == over
    for name, start in (("prior", 0.0), ("bias", 0.1)):
        if name in found:
            assert torch.equal(found[name], torch.full_like(found[name], start))


@pytest.mark.parametrize("make", [DynamicRouting, UniformRouting])
def test_without_a_bias_minus_x_gives_minus_y(make):
    votes = torch.randn(VOTES)
    blind, seeing = bound(make()), bound(make(bias=True))
    assert torch.equal(blind(-votes, None).parents.pose, -blind(votes, None).parents.pose)
    gap = seeing(-votes, None).parents.activation - seeing(votes, None).parents.activation
    assert gap.abs().max() > 0.01


@pytest.mark.parametrize(
    "make",
    [
        DynamicRouting,
        DistanceRouting,
        partial(InvertedRouting, layer_norm=False),
        partial(SelfAttentionRouting, prior="zero"),
        UniformRouting,
    ],
)
def test_a_routing_without_parameters_needs_no_layer(make):
    votes, lengths = torch.rand(VOTES), torch.rand(3, N_IN)
    found = make()(votes, lengths, keep="last")
    assert_equal(found, bound(make())(votes, lengths, keep="last"))
