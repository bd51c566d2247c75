"""Couplings that somebody replaces: parents follow from them as the papers' equations say."""

from functools import partial

import pytest
import torch

from contracts.form_laws import assert_law
from contracts.forms import (
    FORMS,
    ODD,
    PAIRS,
    Case,
    dtype_of,
    leaves_of,
    may_be_given,
    numbers_of,
    route,
)
from ops.test_routing_laws import SUBJECTS, drawn
from ops.test_routing_laws import route as law_route
from torchcaps import TorchcapsError, ops
from torchcaps.ops import by_name

B, I, J, D = 3, 6, 4, 5  # noqa: E741


@pytest.fixture(autouse=True)
def _in_float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def votes_and_lengths():
    return torch.randn(B, I, J, D), torch.rand(B, I) + 0.1


def plain():
    """Every routing on stored votes, with all that it may be given."""
    shape = (B, I, J, D)
    routings = {name: partial(law_route, name, drawn(name, shape)) for name in SUBJECTS}
    for name in ("conv3d", "distance", "dynamic", "em"):
        routings[f"{name}-1"] = partial(law_route, name, drawn(name, shape), iterations=1)
    bare = drawn("inverted", shape, "norm_weight norm_bias")
    routings["inverted-bare"] = partial(law_route, "inverted", bare)
    votes, a = votes_and_lengths()
    own = {"poses": torch.randn(B, I, 2), "weight": torch.randn(I, J, 2)}
    routings["self_routing"] = partial(ops.self_routing, votes, a, **own)
    assert {*by_name.PLAIN} <= {*routings}
    return routings


PLAIN = sorted(plain())


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("same", [lambda c: c, torch.clone], ids=["itself", "clone"])
def test_what_changes_nothing_changes_no_bit(name, same):
    route = plain()[name]
    for keep in ("none", "last", "steps"):
        bare, coupled = route(keep=keep), route(keep=keep, couple=same)
        torch.testing.assert_close(coupled, bare, rtol=0, atol=0)


@pytest.mark.parametrize("name", PLAIN)
def test_the_trace_has_the_replaced_couplings_and_the_parents_they_gave(name):
    route = plain()[name]
    given = torch.rand(B, I, J)
    seen = []
    last = route(keep="last", couple=lambda c: seen.append(c) or given)
    steps = route(keep="steps", couple=lambda c: given)
    assert len(seen) == 1
    assert torch.equal(seen[0], route(keep="last").steps[0].coupling)
    for routed in (last, steps):
        assert torch.equal(routed.steps[-1].coupling, given)
        assert torch.equal(routed.steps[-1].parents.pose, routed.parents.pose)
    assert torch.equal(route(couple=lambda c: given).parents.pose, last.parents.pose)
    before = route(keep="steps").steps[:-1]
    torch.testing.assert_close(steps.steps[:-1], before, rtol=0, atol=0)


def squashed(s):
    square = (s * s).sum(-1, keepdim=True)
    return s * square / (1 + square) / torch.sqrt(square + 1e-8)


def test_vector_parents_are_squashed_sums_of_votes():
    votes, a = votes_and_lengths()
    c, bias = torch.randn(B, I, J), torch.randn(J, D)
    sums = torch.einsum("bij,bijd->bjd", c, votes)
    expected = squashed(sums + bias)
    for routed in (
        ops.dynamic_routing(votes, bias=bias, couple=lambda _: c),
        ops.uniform_routing(votes, bias=bias, couple=lambda _: c),
        ops.distance_routing(votes, 100 * a, bias=bias, couple=lambda _: c),
    ):
        torch.testing.assert_close(routed.parents.pose, expected, rtol=0, atol=1e-12)
        lengths = expected.norm(dim=-1)
        torch.testing.assert_close(routed.parents.activation, lengths, rtol=0, atol=1e-12)
    inverted = ops.inverted_routing(votes, couple=lambda _: c).parents.pose
    torch.testing.assert_close(inverted, sums, rtol=0, atol=1e-12)


@pytest.mark.parametrize("variant", ["paper", "official", "gritzman"])
def test_em_parents_are_the_m_step_of_the_given_couplings(variant):
    votes, a = votes_and_lengths()
    c, costs = torch.rand(B, I, J), {"beta_a": torch.randn(J), "beta_u": torch.randn(J)}
    c[:, :, 1] = 0  # nobody goes to parent 1
    floor = {"paper": 1e-4, "official": 5e-4, "gritzman": 1e-9}[variant]
    options = {**costs, "variant": variant, "lambda_": 0.02, "iterations": 2}
    before = ops.em_routing(votes, a, keep="steps", **options).steps[0].parents.pose
    found = ops.em_routing(votes, a, couple=lambda _: c, **options).parents
    for b in range(B):
        for j in range(J):
            r = [c[b, i, j] * a[b, i] for i in range(I)]
            m = sum(r)
            share = [x / m if j != 1 else torch.zeros(()) for x in r]
            mean = sum(w * votes[b, i, j] for i, w in enumerate(share))
            if variant == "official":
                mean = 0.9 * mean + 0.1 * before[b, j]
            variance = sum(w * (votes[b, i, j] - mean) ** 2 for i, w in enumerate(share)) + floor
            cost = m * (D * costs["beta_u"][j] + variance.log().sum() / 2)
            if variant == "gritzman":
                cost = cost * 100 * J / I
            reward = costs["beta_a"][j]
            if variant == "official":
                weight = costs["beta_u"][j] * D * (torch.log(torch.tensor(2 * torch.pi)) + 1)
                reward, cost = -5000 * reward, m * (variance.log().sum() + weight)
            logit = 0.02 * (1 - 0.95**2) * (reward - cost)
            torch.testing.assert_close(found.pose[b, j], mean, rtol=0, atol=1e-10)
            torch.testing.assert_close(found.activation[b, j], logit.sigmoid(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["dynamic", "distance", "self_attention", "em"])
def test_gradients_reach_votes_through_the_function(name):
    tensors = drawn(name, (B, I, J, D))
    votes, gate = tensors.pop("votes").requires_grad_(), torch.rand(I, J, requires_grad=True)

    def poses(v, g):
        return law_route(name, {"votes": v, **tensors}, couple=lambda c: c * g).parents.pose

    assert torch.autograd.gradcheck(poses, (votes, gate), fast_mode=True)


def lessened(c, *, last=0):
    """Each by another factor, and nobody goes to the last parent."""
    gate = torch.linspace(1, 0.2, c.shape[-2:].numel()).view(c.shape[-2:])
    gate[:, -1] = last
    return c * gate.to(c)


# In single precision the variance of a parent that nobody goes to is a rounding error.
COUPLES = {"fused": lessened, "native": partial(lessened, last=0.1)}


OPTIONS = {"dynamic": [{"detach": "votes"}], "uniform": [{"normalise": "mean"}]}
OPTIONS |= {"em": [{"variant": variant} for variant in ("paper", "official", "gritzman")]}
COUPLED = [
    pytest.param(way, name, options, window, id=f"{way}-{name}-{options}-{window}")
    for name, way in PAIRS
    for options in OPTIONS.get(name, [{}])
    for window in ((None, ODD) if way == "fused" else (None,))
]


@pytest.mark.parametrize(("way", "name", "options", "window"), COUPLED)
def test_forms_without_votes_agree_with_the_plain_one(way, name, options, window):
    options, given = FORMS[name].alone | options, may_be_given(name, way)
    case = Case(name, window=window, given=given, options=options | {"couple": COUPLES[way]})
    leaves = leaves_of(case, dtype_of(way))
    assert_law(way, case, leaves)
    parents = route(way, case, leaves).parents
    for keep, count in (("none", 0), ("last", 1)):
        found = route(way, case, leaves, keep)
        assert len(found.steps) == count
        torch.testing.assert_close(found.parents, parents, rtol=0, atol=1e-6)
    # What changes nothing changes no bit.
    same, bare = (
        numbers_of(route(way, case._replace(options=options | each), leaves, "last"))
        for each in ({"couple": torch.clone}, {})
    )
    torch.testing.assert_close(same, bare, rtol=0, atol=0)


@pytest.mark.parametrize("grad", [True, False])
def test_a_function_that_writes_into_the_couplings_is_told(grad):
    """Fused forms kept the old parents beside the new couplings."""

    def cut(coupling):
        coupling[..., 1] = 0
        return coupling

    v, _ = votes_and_lengths()
    with torch.set_grad_enabled(grad), pytest.raises(TorchcapsError) as caught:
        ops.dynamic_routing(v, couple=cut)
    assert str(caught.value) == (
        "couple must return other couplings and leave those it was given as they are, but it wrote "
        "into them; begin it with couplings = couplings.clone()."
    )


@pytest.mark.parametrize("name", PLAIN)
def test_vmap_replaces_couplings_too(name):
    """The checks of values broke vmap."""
    route = plain()[name]

    def halve(strength):
        return route(couple=lambda c: c * strength).parents.pose

    strengths = torch.tensor([0.5, 1.0, 2.0])
    expected = torch.stack([halve(strength) for strength in strengths])
    torch.testing.assert_close(torch.func.vmap(halve)(strengths), expected, rtol=0, atol=1e-12)
