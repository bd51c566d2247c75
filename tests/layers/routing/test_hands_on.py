"""Every routing as a module hands its options and its parameters to its op."""

import math
from functools import partial
from itertools import product

import pytest
import torch

from layers.routing.bound import N_IN, VOTES, D, assert_equal, bound, random_parameters
from tables import beside
from torchcaps import layers, ops
from torchcaps.layers import (
    DistanceRouting,
    DynamicRouting,
    EMRouting,
    InvertedRouting,
    SelfAttentionRouting,
    UniformRouting,
)

TABLE = beside(__file__, "routings.toml")


def cases():
    for op, said in TABLE["handed"].items():
        for given, own in product(said["given"], said["own"]):
            yield pytest.param(op, given, own, id=f"{op}-{given}-{own}")


@pytest.mark.parametrize(("op", "given", "own"), list(cases()))
def test_every_option_and_parameter_reaches_the_op(op, given, own):
    said = TABLE["handed"][op]
    kind, names = getattr(layers, said["module"]), said["names"]
    if own.get("activations"):
        names = [*names, "beta_a", "beta_u"]
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
    route = partial(getattr(ops, f"{op}_routing"), votes)
    expected = route(**handed, keep="steps")
    assert_equal(routing(votes, activation, keep="steps"), expected)
    if kind is InvertedRouting:
        assert routing.gives_activations == own.get("activations", False)
        parents = None
        for step in expected.steps:
            our_step = routing.step(votes, activation, parents)
            assert torch.equal(our_step.coupling, step.coupling)
            parents = our_step.parents
        assert torch.equal(parents.pose, expected.parents.pose)
    for changed in said["changes"]:
        other = route(**handed | changed).parents
        assert not torch.equal(other.activation, expected.parents.activation)


@pytest.mark.parametrize("call", TABLE["parameters"])
def test_parameters_exist_exactly_when_asked(call):
    said = TABLE["parameters"][call]
    routing = bound(eval(call, vars(layers).copy()))
    found = dict(routing.named_parameters())
    assert {name: [*p.shape] for name, p in found.items()} == said.get("shapes", {})
    assert routing.normalised_over == said["over"]
    for name, start in (("prior", 0.0), ("bias", 0.1)):
        if name in found:
            assert torch.equal(found[name], torch.full_like(found[name], start))


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
