"""Native distance routing is the plain one of the materialised votes: values, gradients, errors."""

import pytest
import torch

from ops.fused.distance_cases import (
    ALL,
    DENSE,
    leaves_of,
    numbers_of,
    results_of,
    routed_by,
)
from ops.fused.vote_maps import KINDS, named
from torchcaps.ops import native
from torchcaps.ops.costs import COSTS
from torchcaps.ops.native import build
from torchcaps.ops.native import distance as kernel

NO_WINDOW = [kind for kind in KINDS if kind[2] is None]


@pytest.fixture(autouse=True)
def _library():
    if not native.available():
        pytest.skip("there is no C++ compiler, or TORCHCAPS_NATIVE=0")


@pytest.fixture
def threads():
    """Sets their number, and puts it back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def wide(found):
    return {name: x.double() for name, x in found.items()}


def error(a, b):
    return (a - b).abs().max() / b.abs().max()


def errors(way, kind, found, exact, **options):
    """The largest error of values, and of each gradient, relative to the largest number of its
    tensor."""
    values, gradients = results_of(way, kind, found, **options)
    true_values, true_gradients = exact
    assert [x.shape for x in values] == [x.shape for x in true_values]
    pairs = [(a, b) for a, b in zip(values, true_values, strict=True) if a.numel()]
    # No max of numbers, which is deaf to NaN.
    worst = {"values": float(torch.stack([error(a, b) for a, b in pairs]).max())}
    largest = max(float(x.abs().max()) for x in true_gradients.values() if x.numel())
    for name, b in true_gradients.items():
        assert gradients[name].shape == b.shape
        if b.numel():
            scale = float(b.abs().max())
            # That of a mean distance is a sum in which much cancels, all of it with one parent.
            scale = scale if scale > 0.01 * largest else max(largest, 1e-30)
            worst[name] = float((gradients[name] - b).abs().max()) / scale
    return worst


def assert_law(kind, found, **options):
    """Against the plain op in float64: 2e-6 of the largest value, 2e-5 of the largest gradient; or
    at most three times the error of the plain op in float32: logits are many times a distance."""
    exact = results_of("plain", kind, wide(found), **options)
    fast, theirs = (errors(way, kind, found, exact, **options) for way in ("native", "plain"))
    for name, each in fast.items():
        bar = 2e-6 if name == "values" else 2e-5
        assert each <= max(bar, 3 * theirs[name]), name


def made(*, batch, n_in, n_out, d_in, d_out):
    return {
        "pose": torch.randn(batch, n_in, d_in),
        "weight": torch.randn(n_in, n_out, d_out, d_in) * 0.3 / d_in**0.5,
        "length": torch.rand(batch, n_in),
    }


def of(kind, options, **more):
    """Leaves for these options, and the options that are no leaf."""
    scales = options["iterations"] - 1 if options.get("scale") == "given" else 0
    found = leaves_of(kind, dtype=torch.float32, scales=scales, **more)
    shrunk = {name: x if name == "scale" else 0.5 * x for name, x in found.items()}
    return shrunk, {name: x for name, x in options.items() if not (name == "scale" and scales)}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("detach", ["none", "votes"])
@pytest.mark.parametrize(
    "sizes",
    [
        *((batch, 6, 5, 8, 16) for batch in (*range(1, 18), 33)),
        *((3, 6, 5, d_in, d_out) for d_in in (3, 5, 8, 16, 24) for d_out in (3, 5, 8, 16, 24)),
        *((5, 6, n_out, 8, 4) for n_out in (1, 2, 7, 33)),
        *((5, n_in, 4, 4, 8) for n_in in (1, 2, 3, 9)),
        (1, 1, 1, 1, 1),
        # more than a group of lanes, than a tile of children
        (300, 5, 3, 4, 4),
        (17, 6, 300, 8, 16),
        (4, 150, 10, 8, 16),
    ],
    ids=str,
)
def test_ragged_sizes(sizes, detach):
    names = ("batch", "n_in", "n_out", "d_in", "d_out")
    found = made(**dict(zip(names, sizes, strict=True)))
    assert_law(DENSE, found, detach=detach, keep="last", scale="batch")


@pytest.mark.drawn(3)
@pytest.mark.parametrize("scale", ["sample", "batch"])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("kind", NO_WINDOW, ids=named)
def test_any_number_of_threads(kind, count, scale, threads):
    threads(count)
    found, _ = of(kind, {}, parameters=ALL, lead=(19,))
    assert_law(kind, found, keep="steps", scale=scale)


def test_more_threads_move_the_last_digits_alone(threads):
    found = made(batch=20, n_in=200, n_out=10, d_in=8, d_out=16)
    results = []
    for count in (1, 2):
        threads(count)
        values, gradients = results_of("native", DENSE, found, keep="last")
        results.append((*values, *gradients.values()))
    for one, two in zip(*results, strict=True):
        assert (one - two).abs().max() <= 1e-5 * one.abs().max()


@pytest.mark.parametrize("kind", NO_WINDOW, ids=named)
def test_an_empty_batch(kind):
    found, _ = of(kind, {}, parameters=ALL, lead=(0,))
    leaves = {name: x.requires_grad_() for name, x in found.items()}
    for scale in ("sample", "batch", torch.ones(2)):
        results = []
        for way in ("native", "plain"):
            routed = routed_by(way, kind, leaves, scale=scale, keep="steps")
            gradients = torch.autograd.grad(routed.parents.pose.sum(), leaves.values())
            assert not any(gradient.any() for gradient in gradients)
            results.append(numbers_of(routed))
        torch.testing.assert_close(*results, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("detach", ["none", "votes"])
@pytest.mark.parametrize("length", [0.0, 1e-3, -1.0, 1e3])
def test_children_without_length_and_very_long_ones(length, detach):
    found, _ = of(DENSE, {}, parameters=ALL)
    found["length"][:, ::2] = length
    assert_law(DENSE, found, keep="steps", detach=detach)


@pytest.mark.parametrize("length", [0.0, -1.0, 1.0])
def test_a_vote_of_zero_is_short_enough(length):
    found, _ = of(DENSE, {})
    found["pose"][:, ::2], found["length"][:, ::2] = 0, length
    assert_law(DENSE, found, p=0.5)


@pytest.mark.drawn(4)
@pytest.mark.parametrize("scale", ["sample", "batch"])
@pytest.mark.parametrize("squash", ["hinton", "exp"])
@pytest.mark.parametrize("detach", ["none", "votes"])
def test_the_standard_size_stays_within_its_bounds(detach, squash, scale):
    found = made(batch=6, n_in=1152, n_out=10, d_in=8, d_out=16)
    assert_law(DENSE, found, detach=detach, squash=squash, scale=scale)


def test_the_distances_of_a_routing_give_the_same_routing():
    found, _ = of(DENSE, {}, parameters=ALL)
    measured = routed_by("native", DENSE, found, scale="batch")
    again = routed_by("native", DENSE, found, scale=measured.scale)
    assert torch.equal(again.parents.pose, measured.parents.pose)
    assert torch.equal(again.scale, measured.scale)


@pytest.mark.parametrize("scale", ["sample", "batch"])
@pytest.mark.parametrize("name", ["pose", "weight", "length", "bias"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_seen_where_the_fused_form_sees_it(name, bad, scale):
    found, _ = of(DENSE, {}, parameters=("bias",), lead=(20,))
    found[name].view(-1)[3] = bad
    results = []
    for way in ("fused", "native"):
        leaves = {key: x.clone().requires_grad_() for key, x in found.items()}
        routed = routed_by(way, DENSE, leaves, keep="last", scale=scale)
        gradients = torch.autograd.grad(routed.parents.pose.sum(), leaves.values())
        results.append((*numbers_of(routed), *gradients))
    for theirs, ours in zip(*results, strict=True):
        assert torch.equal(theirs.isfinite(), ours.isfinite())


def test_flops_are_counted():
    batch, n_in, n_out, d_in, d_out = 2, 6, 5, 8, 4
    found = made(batch=batch, n_in=n_in, n_out=n_out, d_in=d_in, d_out=d_out)
    agreement = 2 * batch * n_in * n_out * d_out

    def counted(call):
        with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
            result = call()
        return counter.get_total_flops(), result

    # Votes are made five times, mixed three times, and twice more for what the rate is owed.
    flops, _ = counted(lambda: routed_by("native", DENSE, found))
    assert flops == agreement * (5 * d_in + 3 + 2)
    # Who gives the mean distances has no need of measuring.
    flops, _ = counted(lambda: routed_by("native", DENSE, found | {"scale": torch.ones(2)}))
    assert flops == agreement * (3 * d_in + 3)
    for detach, expected in (
        # Back through two iterations; couplings and gradients of three.
        ("none", 2 * (d_in + 1) + 4 * d_in + 3 + 2),
        # Couplings and gradients of the last iteration.
        ("votes", 4 * d_in + 1),
    ):
        leaves = {name: x.requires_grad_() for name, x in found.items()}
        pose = routed_by("native", DENSE, leaves, detach=detach).parents.pose
        flops, _ = counted(lambda pose=pose: pose.sum().backward())
        assert flops == agreement * expected


def test_a_workspace_is_near_that_of_the_kernel(threads, monkeypatch):
    threads(2)
    asked, found, plan = [], [], build.library().torchcaps_distance_plan
    for name in ("forward", "backward"):
        operator = getattr(kernel.measured, name)

        def call(*arguments, operator=operator):
            asked.append(COSTS[operator.overloadpacket](*arguments).workspace)
            return operator(*arguments)

        monkeypatch.setattr(kernel.measured, name, call)

    def planned(job, backward):
        plan(job, backward)
        found.append(4 * job._obj.workspace_size)

    monkeypatch.setattr(build.library(), "torchcaps_distance_plan", planned)
    leaves = made(batch=128, n_in=1152, n_out=10, d_in=8, d_out=16)
    leaves = {name: x.requires_grad_() for name, x in leaves.items()}
    routed_by("native", DENSE, leaves).parents.pose.sum().backward()
    assert len(asked) == len(found) == 2
    for estimated, real in zip(asked, found, strict=True):
        assert 0.6 * real <= estimated <= 1.6 * real
        # A tenth of one number for each child and parent would be as much again.
        assert real < 8e6
