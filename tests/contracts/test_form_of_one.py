"""What the forms of one routing owe alone, on every backend that has it."""

import pytest
import torch

from contracts.form_laws import CUTS, assert_law, cut
from contracts.forms import (
    ODD,
    PAIRS,
    SMALL,
    Case,
    dtype_of,
    leaves_of,
    may_be_given,
    numbers_of,
    route,
)


def ways_of(algorithm):
    return pytest.mark.parametrize("way", [way for name, way in PAIRS if name == algorithm])


@ways_of("em")
@pytest.mark.parametrize("child", [0, slice(None)], ids=["one", "all"])
@pytest.mark.parametrize("variant", ["paper", "gritzman", "official"])
def test_children_that_are_not_there(variant, child, way):
    case = Case("em", options={"variant": variant}, batch=(3,))
    leaves = leaves_of(case, dtype_of(way))
    leaves["activation"][:, child] = 0.0
    assert_law(way, case, leaves)


@pytest.mark.parametrize("way", ["fused", "native"])
@pytest.mark.parametrize(("window", "compete"), [(None, "window"), (ODD, "all")], ids=str)
def test_couplings_of_one_iteration_are_kept(window, compete, way):
    case = Case("em", "none", "matrix", window, options={"compete": compete}, batch=(24,))
    leaves = {name: x.requires_grad_() for name, x in leaves_of(case, torch.float32).items()}
    couplings = route(way, case, leaves, "last").steps[0].coupling

    def kept(iterations, keep="none"):
        longer, sizes = case._replace(options=case.options | {"iterations": iterations}), []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x: sizes.append(x.numel()) or x, lambda x: x
        ):
            route(way, longer, leaves, keep)
        return sum(size >= couplings.numel() for size in sizes)

    assert 0 < kept(3) == kept(7)
    assert kept(3) < kept(7, "steps")


def distance_case(way, **rest):
    return Case("distance", given=may_be_given("distance", way), **rest)


@ways_of("distance")
@pytest.mark.parametrize("detach", ["none", "votes"])
@pytest.mark.parametrize("length", [0.0, 1e-3, -1.0, 1e3])
def test_children_without_length_and_very_long_ones(length, detach, way):
    case = distance_case(way, options={"detach": detach})
    leaves = leaves_of(case, dtype_of(way))
    leaves["length"][:, ::2] = length
    assert_law(way, case, leaves)


@ways_of("distance")
@pytest.mark.parametrize("length", [0.0, -1.0, 1.0])
def test_a_vote_of_zero_is_short_enough(length, way):
    case = Case("distance", options={"p": 0.5})
    leaves = leaves_of(case, dtype_of(way))
    leaves["pose"][:, ::2], leaves["length"][:, ::2] = 0, length
    assert_law(way, case, leaves)


@ways_of("distance")
def test_the_distances_of_a_routing_give_the_same_routing(way):
    case = distance_case(way, options={"scale": "batch"})
    leaves = leaves_of(case, dtype_of(way))
    measured = route(way, case, leaves)
    given = leaves | {"scale": measured.scale.clone()}
    again = route(way, case._replace(options={"scale": "given"}), given)
    assert torch.equal(again.parents.pose, measured.parents.pose)
    given["scale"].zero_()
    assert torch.equal(again.scale, measured.scale)


@ways_of("distance")
@pytest.mark.parametrize("window", [None, SMALL], ids=["dense", "window"])
def test_an_empty_batch_has_no_mean_distance(window, way):
    case = distance_case(way, options={"scale": "batch"}, window=window, batch=(0,))
    leaves = {name: x.requires_grad_() for name, x in leaves_of(case, dtype_of(way)).items()}
    found, plain = (route(each, case, leaves) for each in (way, "plain"))
    torch.testing.assert_close(numbers_of(found), numbers_of(plain), equal_nan=True)
    assert found.scale.isnan().all()
    gradients = torch.autograd.grad(found.parents.pose.sum(), leaves.values())
    assert not any(gradient.any() for gradient in gradients)


@ways_of("distance")
def test_an_empty_batch_goes_by_the_distances_given(way):
    case = distance_case(way, options={"scale": "given"}, batch=(0,))
    leaves = {name: x.requires_grad_() for name, x in leaves_of(case, dtype_of(way)).items()}
    found = route(way, case, leaves).scale
    assert torch.equal(found, leaves["scale"])
    of_scale = torch.rand_like(found)
    gradients = torch.autograd.grad(found, leaves.values(), of_scale, materialize_grads=True)
    for name, gradient in zip(leaves, gradients, strict=True):
        assert torch.equal(gradient, of_scale) if name == "scale" else not gradient.any()


def seen_cases():
    """With whom they see it; sizes of a dozen children fill more than one block of each."""
    sizes = {"n_in": 12, "n_out": 5, "d_out": 4, "batch": (20,)}
    for name in ("pose", "weight", "bias", "prior"):
        given = ("bias", "prior")
        yield "native", "plain", name, Case("dynamic", given=given, **sizes)
    for name in ("pose", "weight", "bias", "length"):
        for scale in ("sample", "batch"):
            case = Case("distance", given=("bias",), options={"scale": scale}, **sizes)
            yield "native", "fused", name, case


@pytest.mark.parametrize(("way", "other", "name", "case"), [*seen_cases()], ids=str)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_seen_where_it_is_seen(way, other, name, case, bad, monkeypatch):
    cut(monkeypatch, way, 1)
    found = leaves_of(case, torch.float32)
    found[name].view(-1)[3] = bad
    results = []
    for each in (other, way):
        leaves = {key: x.clone().requires_grad_() for key, x in found.items()}
        numbers = numbers_of(route(each, case, leaves, "last"))
        gradients = torch.autograd.grad(numbers["pose"].sum(), leaves.values())
        results.append((*numbers.values(), *gradients))
    for theirs, ours in zip(*results, strict=True):
        assert torch.equal(theirs.isfinite(), ours.isfinite())


@ways_of("dynamic")
@pytest.mark.parametrize("cut_at", [0, 1])
def test_a_prior_of_minus_infinity_closes_a_way(way, cut_at, monkeypatch):
    cut(monkeypatch, way, CUTS[way][cut_at])
    case = Case("dynamic", given=("prior",), n_out=5)
    leaves = leaves_of(case, torch.float32)
    leaves["prior"][:, 0] = leaves["prior"][:, 2] = -float("inf")
    coupling = route(way, case, leaves, "last").steps[0].coupling
    assert not coupling[..., [0, 2]].any()
    torch.testing.assert_close(coupling.sum(-1), torch.ones(2, 6))


@ways_of("inverted")
@pytest.mark.parametrize("window", [None, SMALL], ids=["dense", "window"])
@pytest.mark.parametrize("started", [False, True])
def test_inverted_routing_is_its_steps(started, window, way):
    given = ("vote_bias", "coordinates", "norm_weight", "norm_bias", *["start"] * started)
    case = Case("inverted", "none", "matrix", window, given, {"scale": 0.5, "iterations": 4})
    leaves, once = leaves_of(case, torch.float32), {"scale": 0.5, "iterations": 1}
    routed = route(way, case, leaves)
    for kept in routed.steps:
        last, quick = (route(way, case._replace(options=once), leaves, x) for x in ("last", "none"))
        (step,) = last.steps
        assert step.children is step.parents.activation is None
        assert quick.steps == ()
        assert torch.equal(step.coupling, kept.coupling)
        for pose in (step.parents.pose, quick.parents.pose):
            assert torch.equal(pose, kept.parents.pose)
        leaves = leaves | {"start": step.parents.pose}
    assert torch.equal(leaves["start"], routed.parents.pose)
