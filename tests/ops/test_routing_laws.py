"""What every routing of torchcaps.ops keeps: its loop twin with every option, and the same laws."""

from importlib import import_module
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils._pytree import tree_map_only

from tables import beside
from torchcaps import ops
from torchcaps.types import Window

# No batch axis, one child, one parent, both, a batch of one, two batch axes.
SHAPES = [(5, 3, 4), (1, 3, 2), (4, 1, 3), (1, 1, 1), (1, 3, 2, 3), (2, 1, 2, 3, 2)]
# The parents of 3-D convolutional routing: not square, more than one type.
GRIDS = {12: (2, 3, 2), 6: (3, 1, 2), 5: (5, 1, 1), 4: (1, 2, 2), 1: (1, 1, 1)}
CONV3D = [(3, 12, 2), (1, 6, 2), (4, 1, 3), (1, 1, 1), (1, 3, 5, 2), (2, 1, 2, 4, 3)]
WINDOWS = Window((4, 5, 2), (3, 2), (1, 2)).child_id()


class Subject(NamedTuple):
    """A routing: its tensors by their axes, in which order its twin answers, its cases."""

    tensors: dict[str, str]
    answers: tuple[str, ...]
    # Which tensors are given, and which options.
    cases: list[tuple[str, dict[str, Any]]]
    shapes: list[tuple[int, ...]]


def subjects():
    for name, said in beside(__file__, "routing_laws.toml").items():
        cases = [case for each in said["cases"] for case in product(each["given"], each["options"])]
        shapes = CONV3D if name == "conv3d" else SHAPES
        yield name, Subject(said["tensors"], tuple(said["answers"]), cases, shapes)


VARIANTS = ("paper", "official", "gritzman")
SUBJECTS = dict(subjects())
EVERY = pytest.mark.parametrize("name", SUBJECTS)
LARGE = (2, 5, 3, 4)
# Gradients, or numbers of any kind, that are above one: a part of the largest is allowed.
GROWS = {"em": (False, True), "inverted": (True, True)}


def drawn(name, shape, given=None, options=()):
    """Votes, and the tensors that are given; without `given` all of them but a scale."""
    *lead, n_in, n_out, size = shape
    types = GRIDS[n_out][2] if name == "conv3d" else None
    sizes = {"b": lead, "i": [n_in], "j": [n_out], "d": [size], "z": [types], "t": [2]}
    made = {"votes": torch.randn(shape, dtype=torch.float64)}
    wanted = SUBJECTS[name].tensors.keys() - {"scale"} if given is None else given.split()
    for key, axes in SUBJECTS[name].tensors.items():
        if key in wanted:
            own = [n for axis in axes for n in sizes[axis]]
            made[key] = torch.randn(own, dtype=torch.float64)
    if "activation" in made:
        made["activation"] = made["activation"].sigmoid()
        if name == "distance":
            made["activation"] = 0.2 + 2 * made["activation"]
    for key in made.keys() & {"agreement", "scale"}:
        made[key] = made[key].sigmoid() + 0.2
    # The released code that "official" is multiplies it by 5000.
    if dict(options).get("variant") == "official":
        made["beta_a"] = made["beta_a"] * 1e-3
    return made


def shape_of(name):
    return (2, 5, 12, 4) if name == "conv3d" else LARGE


def called(function, name, tensors, options):
    given = dict(tensors) | dict(options)
    if "norm_weight" in given:
        given["norm"] = given.pop("norm_weight"), given.pop("norm_bias")
    if name == "conv3d":
        given["parent_grid"] = GRIDS[given["votes"].shape[-2]]
    return function(**given)


def route(name, tensors, **options):
    return called(getattr(ops, f"{name}_routing"), name, tensors, options)


def numbers_of(routed):
    """All that a routing gives, by name."""
    made = {"pose": routed.parents.pose, "activation": routed.parents.activation}
    made |= {"couplings": [step.coupling for step in routed.steps], "scale": routed.scale}
    return {key: x for key, x in made.items() if x is not None}


def flat(numbers):
    parts = [y for x in numbers for y in (x if isinstance(x, list) else [x])]
    return torch.cat([x.flatten() for x in parts])


def assert_parity(name, theirs, options, device, dtype, tolerance):
    twin = getattr(import_module(f"reference.{name}"), f"{name}_routing")
    theirs = {key: x.requires_grad_() for key, x in theirs.items()}
    ours = {key: x.detach().to(device, dtype).requires_grad_() for key, x in theirs.items()}
    local = {key: x.to(device) if torch.is_tensor(x) else x for key, x in options.items()}
    found = numbers_of(route(name, ours, **local, keep="steps"))
    answers = zip(SUBJECTS[name].answers, called(twin, name, theirs, options), strict=True)
    expected = {key: x for key, x in answers if x is not None}
    assert {"activation"} | expected.keys() == {"activation"} | found.keys()
    for key in expected.keys() - {"couplings"}:
        assert found[key].shape == expected[key].shape, key
    result, reference = flat([found[key] for key in expected]), flat(expected.values())
    weight = torch.randn_like(reference)
    gradients = torch.autograd.grad(
        (result * weight.to(result)).sum(), ours.values(), materialize_grads=True
    )
    of_twin = torch.autograd.grad(
        (reference * weight).sum(), theirs.values(), materialize_grads=True
    )
    values_grow, gradients_grow = GROWS.get(name, (False, False))
    pairs = [("values", values_grow, result, reference)]
    for key, a, b in zip(ours, gradients, of_twin, strict=True):
        pairs.append((f"gradient of {key}", gradients_grow, a, b))
    for what, grows, a, b in pairs:
        error = float((a.detach().cpu().double() - b.detach()).abs().max())
        largest = max(1.0, float(b.detach().abs().max())) if grows else 1.0
        assert error <= tolerance * largest, f"{what} at {tuple(theirs['votes'].shape)}"


@pytest.mark.parametrize(
    ("name", "given", "options"),
    [(name, *case) for name, subject in SUBJECTS.items() for case in subject.cases],
    ids=str,
)
def test_parity_with_the_twin(name, given, options, device, dtype, tolerance):
    """Values, couplings and gradients, with options left out as in the twin: so are defaults."""
    for shape in SUBJECTS[name].shapes:
        tensors = drawn(name, shape, given, options.items())
        assert_parity(name, tensors, options, device, dtype, tolerance)


@pytest.mark.parametrize("name", ["em", "inverted"])
@pytest.mark.parametrize("dead", [1, 5])
@pytest.mark.parametrize("variant", VARIANTS)
def test_parity_without_activations(name, variant, dead, device, dtype, tolerance):
    options = {"variant": variant} if name == "em" else {}
    tensors = drawn(name, (5, 3, 2), options=options.items())
    tensors["activation"][:dead] = 0
    assert_parity(name, tensors, options, device, dtype, tolerance)


@pytest.mark.parametrize(
    ("child_id", "shape", "options"),
    [
        *((WINDOWS, (*WINDOWS.shape, 2, 2), options) for _, options in SUBJECTS["em"].cases),
        (torch.tensor([[0, 1], [1, 2]]), (2, 1, 2, 2, 3, 2), {"lambda_": 1.0}),
    ],
    ids=lambda x: str(x) if isinstance(x, dict) else None,
)
def test_parity_where_all_windows_compete(child_id, shape, options, device, dtype, tolerance):
    tensors = drawn("em", shape, options=options.items())
    options = options | {"compete": "all", "child_id": child_id}
    assert_parity("em", tensors, options, device, dtype, tolerance)


LOOPS = {"conv3d", "distance", "dynamic", "em", "inverted"}


@EVERY
def test_keep_counts_steps_and_names_no_children(name):
    options = {"iterations": 4} if name in LOOPS else {}
    for keep, count in (("none", 0), ("last", 1), ("steps", 4 if name in LOOPS else 1)):
        routed = route(name, drawn(name, shape_of(name)), keep=keep, **options)
        assert len(routed.steps) == count
        assert all(step.children is None for step in routed.steps)
        assert (routed.scale is not None) == (name == "distance")


@pytest.mark.parametrize("name", sorted(SUBJECTS.keys() - {"em", "inverted"}))
@pytest.mark.parametrize("keep", ["none", "last"])
def test_activation_is_the_length_of_the_pose(name, keep):
    parents = route(name, drawn(name, shape_of(name)), keep=keep).parents
    torch.testing.assert_close(parents.activation, parents.pose.norm(dim=-1))


@EVERY
def test_an_empty_batch_and_sizes_without_computing(name):
    _, *own = shape = shape_of(name)
    tensors = drawn(name, (0, *own))
    leaves = {key: x.requires_grad_() for key, x in tensors.items()}
    empty = route(name, leaves, keep="last")
    whole = numbers_of(route(name, drawn(name, shape), keep="last"))
    meta = {key: x.to("meta") for key, x in drawn(name, shape).items()}
    asked = numbers_of(route(name, meta, keep="last"))
    assert asked.keys() == whole.keys() == numbers_of(empty).keys()
    for key, x in whole.items():
        one, other = (y[0] if key == "couplings" else y for y in (x, asked[key]))
        none = numbers_of(empty)[key]
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert (none[0] if key == "couplings" else none).shape == (0, *one.shape[1:])
    flat(numbers_of(empty).values()).sum().backward()
    for key, x in leaves.items():
        assert torch.equal(x.grad, torch.zeros_like(x)), key


@EVERY
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_computes_in_float32_and_rounds_once(name, dtype):
    # Sums of the votes, and agreements with them, are more than float16 can hold.
    _, *own = shape_of(name)
    tensors = drawn(name, (1200, *own[1:]))
    tensors["votes"] += 60
    half = {key: x.to(dtype) for key, x in tensors.items()}
    wide = {key: x.float() for key, x in half.items()}
    found, exact = (route(name, x, keep="steps") for x in (half, wide))
    rounded = tree_map_only(torch.Tensor, lambda x: x.to(dtype), exact.steps)
    torch.testing.assert_close(found.steps, rounded, rtol=0, atol=0)
    torch.testing.assert_close(found.parents, found.steps[-1].parents, rtol=0, atol=0)
    torch.testing.assert_close(found.scale, exact.scale, rtol=0, atol=0)


@EVERY
def test_autocast_changes_nothing(name):
    tensors = {key: x.float() for key, x in drawn(name, shape_of(name)).items()}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = route(name, tensors, keep="last")
    torch.testing.assert_close(inside, route(name, tensors, keep="last"), rtol=0, atol=0)


@EVERY
def test_parameters_follow_the_precision_of_the_votes(name):
    tensors = drawn(name, shape_of(name))
    single = {key: x if key == "votes" else x.float() for key, x in tensors.items()}
    double = {key: x.double() for key, x in single.items()}
    found, exact = (numbers_of(route(name, x)) for x in (single, double))
    assert all(x.dtype == torch.float64 for key, x in found.items() if key != "couplings")
    assert torch.equal(flat(found.values()), flat(exact.values()))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *(("dynamic", key) for key in ("bias", "prior")),
        *(("distance", key) for key in ("bias", "activation")),
        *(("em", key) for key in ("beta_a", "beta_u")),
        *(("inverted", key) for key in ("start", "activation")),
        ("self_attention", "bias"),
        ("uniform", "bias"),
    ],
)
def test_a_parameter_of_any_broadcast_shape(name, key):
    tensors = drawn(name, LARGE)
    axes, x = SUBJECTS[name].tensors[key], tensors[key]
    narrow = {"bi": (x[0], x[0, :1], x[0, 0])} if axes == "bi" else {axes: (x[:1], x[0])}
    for each in narrow[axes]:
        leaf = each.clone().requires_grad_()
        found = route(name, tensors | {key: leaf})
        wide = route(name, tensors | {key: each.expand_as(x)})
        torch.testing.assert_close(found.parents, wide.parents, rtol=0, atol=1e-14)
        (gradient,) = torch.autograd.grad(flat(found.parents).square().sum(), leaf)
        assert gradient.shape == each.shape
        assert gradient.abs().max() > 0
    if len(axes) < 2 or axes == "bi":
        return
    own = tensors | {key: torch.randn(2, *x.shape, dtype=torch.float64)}
    batch = route(name, own).parents.pose
    for b in range(2):
        alone = {k: y[b] if k in ("votes", "activation", key) else y for k, y in own.items()}
        torch.testing.assert_close(batch[b], route(name, alone).parents.pose, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["distance", "dynamic", "inverted"])
def test_one_iteration_is_uniform_routing_and_has_nothing_to_detach(name):
    tensors = drawn(name, LARGE, "activation bias" if name == "distance" else "bias")
    if name == "distance":
        tensors["activation"] += 1e3  # No vote is shortened.
    ours = {key: x.requires_grad_() for key, x in tensors.items()}
    uniform = {key: x for key, x in ours.items() if key != "activation"}
    squash = {"squash": "none"} if name == "inverted" else {}
    expected = route("uniform", uniform, **squash).parents.pose
    of_twin = torch.autograd.grad(expected.square().sum(), uniform.values())
    words = {"distance": ("none", "votes", "iterations"), "dynamic": ("none", "votes", "states")}
    for detach in words.get(name, ("",)):
        options = {"detach": detach} if detach else {}
        pose = route(name, ours, iterations=1, **options).parents.pose
        torch.testing.assert_close(pose, expected, rtol=0, atol=1e-14)
        gradients = torch.autograd.grad(pose.square().sum(), uniform.values())
        torch.testing.assert_close(gradients, of_twin, rtol=0, atol=1e-12)
