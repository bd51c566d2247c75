"""Every form of every routing is the plain op of the materialised votes, on every backend."""

from itertools import count, product

import pytest
import torch

from contracts.form_laws import CUTS, assert_law, cut
from contracts.forms import (
    FORMS,
    ODD,
    PAIRS,
    WINDOWS,
    Case,
    Watch,
    gradients_of,
    leaves_of,
    may_be_given,
    noise_like,
    numbers_of,
    results_of,
    route,
    takes,
)
from ops.triton.interpreter import triton_device  # noqa: F401
from torchcaps.ops import native
from torchcaps.ops.fused import tiles, window_sums
from torchcaps.types import Window

LARGE = Window((7, 5, 8), (3, 3), (2, 1))
SHARED = list(product(("none", "type", "all"), ("vector", "matrix")))
# Children and parents of one size and of two, folded or made; parents in one tile and in several.
SIZES = {
    "fused": [{}, {}, {}, {"d_out": 7}, {"d_out": 4}, {"d_out": 7}, {"n_in": 12}],
    "native": [{"batch": (5,), "d_in": d_in, "n_out": 5} for d_in in (4, 9, 16, 9, 16)],
    "triton": [{}, {"n_out": 9}],
}
# Five iterations over larger votes have errors beyond the bars of single precision.
STEEP = ("dynamic", "distance")
# Of so many cases one is in the default tier.
DRAWN = {"fused": 40, "native": 16, "triton": 40}


def dtype_of(way):
    return torch.float64 if way == "fused" else torch.float32


@pytest.fixture(autouse=True)
def _backend(request):
    way = request.getfixturevalue("way") if "way" in request.fixturenames else "fused"
    if way == "triton":
        request.getfixturevalue("triton_device")
    if way == "native" and not native.available():
        pytest.skip("there is no C++ compiler, or TORCHCAPS_NATIVE=0")


def marked(items, drawn):
    """With a name, and of each backend a part in the default tier."""
    return [
        pytest.param(*item, marks=pytest.mark.drawn(drawn[item[0]]), id="-".join(map(str, item)))
        for item in items
    ]


def every_case():
    """Every kind of votes meets every option; parameters and cuts take turns."""
    turns = count()
    for algorithm, way in PAIRS:
        form = FORMS[algorithm]
        seen = [(window, options) for window in (None, ODD) for options in form.options]
        others = [*WINDOWS[1:], *([LARGE] if way == "native" else [])]
        seen += [(window, options) for window in others for options in form.options[:1]]
        for (sharing, pose), (window, options) in product(SHARED, seen):
            if options.get("compete") == "all" and window is None:
                continue
            turn = next(turns)
            if way == "native" and algorithm in STEEP and window is not None:
                continue  # These kernels take no windows; the fused form is held to more above.
            if way == "triton" and turn % 3:  # The interpreter takes seconds for one.
                continue
            # Small variances of few children enlarge what single precision rounds.
            easy = window not in others and sharing == "none" and "lambda_" not in options
            if algorithm == "em" and way != "fused" and not (easy and way == "native"):
                options = form.alone | options
            how = CUTS[way][turn % len(CUTS[way])]
            given = may_be_given(algorithm) if turn // 3 % 2 else ()
            sizes = SIZES[way][turn % len(SIZES[way])]
            if way == "native" and (
                algorithm in STEEP or (algorithm == "em" and sharing != "none")
            ):
                sizes = {"batch": (5,), "n_out": 5}
            yield way, how, Case(algorithm, sharing, pose, window, given, options, **sizes)


@pytest.mark.parametrize(("way", "how", "case"), marked(every_case(), DRAWN))
def test_values_and_all_gradients_are_those_of_the_plain_op(way, how, case, monkeypatch):
    cut(monkeypatch, way, how)
    leaves = leaves_of(case, dtype_of(way))
    assert_law(way, case, leaves)


SHAPES = [
    *({"batch": batch} for batch in ((), (1,), (2, 1, 3), (0,), (2, 0), (15,), (16,), (17,))),
    {"n_in": 1},
    {"n_out": 1},
    {"n_in": 1, "n_out": 1, "d_in": 1, "d_out": 1},
    {"n_in": 7, "n_out": 11, "d_in": 9, "d_out": 2},
    {"n_in": 3, "n_out": 5, "d_in": 25, "d_out": 17},
    {"n_in": 9, "n_out": 33, "d_in": 4, "d_out": 17},
]


def every_shape():
    for (algorithm, way), shape, window in product(
        PAIRS, SHAPES, (None, ODD, Window((1, 1, 1), (1, 1), (1, 1)))
    ):
        form = FORMS[algorithm]
        given = [x for x in may_be_given(algorithm) if not x.startswith("norm")]
        pose = "matrix" if len(str(shape)) % 2 else "vector"
        yield (
            way,
            CUTS[way][1],
            Case(algorithm, "none", pose, window, tuple(given), form.alone, **shape),
        )


@pytest.mark.parametrize(
    ("way", "how", "case"), marked(every_shape(), {"fused": 6, "native": 6, "triton": 24})
)
def test_batches_and_capsules_of_every_number(way, how, case, monkeypatch):
    cut(monkeypatch, way, how)
    assert_law(way, case, leaves_of(case, dtype_of(way)))


KINDS_OF_GRADIENTS = {"detach", "scale", "variant"}


def few_cases():
    """Of each form dense and through windows, with all that may be given."""
    for (algorithm, way), (pose, window) in product(PAIRS, (("vector", None), ("matrix", ODD))):
        given = may_be_given(algorithm)
        every = [
            options
            for options in FORMS[algorithm].options
            if options.keys() & KINDS_OF_GRADIENTS
            and options.keys() <= {*KINDS_OF_GRADIENTS, "iterations"}
            and options.get("iterations", 3) == 3
        ]
        for options in every or [{}]:
            if way != "triton":
                yield way, Case(algorithm, "none", pose, window, given, options)
                continue
            fewer = {} if algorithm == "self_attention" else {"iterations": 2}
            options = FORMS[algorithm].alone | options | fewer
            window = window and Window((2, 3, 1), (2, 2), (1, 1))
            yield way, Case(algorithm, "none", pose, window, given, options, n_in=3)


FEW = pytest.mark.parametrize(
    ("way", "case"), marked(few_cases(), {"fused": 5, "native": 5, "triton": 12})
)


@FEW
def test_keep_changes_no_bit(way, case, monkeypatch):
    cut(monkeypatch, way, CUTS[way][1])
    leaves = {n: x.requires_grad_() for n, x in leaves_of(case, torch.float32).items()}
    steps = len(route("plain", case, leaves).steps)
    kept = {keep: route(way, case, leaves, keep) for keep in ("none", "last", "steps")}
    assert [len(routed.steps) for routed in kept.values()] == [0, 1, steps]
    found = [
        (*(x for x in (*routed.parents, routed.scale) if x is not None),)
        for routed in kept.values()
    ]
    for numbers, routed in zip(found, kept.values(), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(found[0], numbers, strict=True))
        for step in routed.steps[-1:]:
            assert torch.equal(step.coupling, kept["last"].steps[0].coupling)
            assert torch.equal(step.parents.pose, routed.parents.pose)
    gradients = [
        torch.autograd.grad(
            routed.parents.pose.square().sum(), leaves.values(), materialize_grads=True
        )
        for routed in kept.values()
    ]
    for other in gradients[1:]:
        assert all(torch.equal(a, b) for a, b in zip(gradients[0], other, strict=True))


@FEW
def test_a_gradient_does_not_ask_who_else_wants_one(way, case):
    leaves = leaves_of(case, torch.float32)
    together = results_of(way, case, leaves)
    for name in leaves:
        alone = {key: x.clone().requires_grad_(key == name) for key, x in leaves.items()}
        numbers = numbers_of(route(way, case, alone)).values()
        pairs = [(x, seed) for seed, x in enumerate(numbers) if x.requires_grad]
        assert pairs, name
        sum((x * noise_like(x, seed)).sum() for x, seed in pairs).backward()
        torch.testing.assert_close(alone[name].grad, together[f"of {name}"], rtol=1e-5, atol=1e-5)


@FEW
def test_the_gradient_of_each_output_alone(way, case):
    found = []
    leaves = leaves_of(case, dtype_of(way))
    for each in (way, "plain"):
        mine = {name: x.clone().requires_grad_() for name, x in leaves.items()}
        numbers = numbers_of(route(each, case, mine))
        found.append({name: gradients_of([x], mine) for name, x in numbers.items()})
    bar = 1e-10 if way == "fused" else 1e-4
    torch.testing.assert_close(*found, rtol=bar, atol=bar)


@FEW
def test_a_backend_routes_what_it_says_that_it_takes(way, case):
    for dtype in (torch.float32, torch.float64):
        leaves = leaves_of(case, dtype)
        with Watch() as watch:
            route(way, case, leaves)
        assert watch.called
        # Who has no kernel goes the fused way.
        ran = {"native": "native_", "triton": "triton_"}.get(way, "")
        took = takes(way, case, leaves)
        assert all(name.startswith(ran) for name in watch.called) is took
        if way == "fused" or not took:
            assert not any(name.startswith(("native_", "triton_")) for name in watch.called)


SEEN = Window((5, 5, 8), (3, 3), (1, 1))
SMALL = Window((3, 3, 2), (2, 2), (1, 1))
KEEPS_COUPLINGS = ("distance", "em")  # for the backward pass, of one iteration


def large_cases():
    for (algorithm, way), is_seen in product(PAIRS, (False, True)):
        if way == "triton":  # The interpreter takes a millisecond for a line of a kernel.
            window = SMALL if is_seen else None
            yield way, Case(algorithm, window=window, batch=(5,), n_in=8, n_out=9)
        else:
            sizes = {
                "batch": (64,) if way == "native" and not is_seen else (8,),
                "n_in": 72,
                "n_out": 8,
                "d_in": 16,
            }
            window = SEEN if is_seen else None
            options = {"iterations": 2} if algorithm in ("distance", "em") else {}
            yield way, Case(algorithm, "none", "matrix", window, (), options, **sizes)


@pytest.mark.parametrize("keep", ["none", "steps"])
@pytest.mark.parametrize(
    ("way", "case"), marked(large_cases(), {"fused": 4, "native": 4, "triton": 9})
)
def test_nothing_is_as_large_as_votes(way, case, keep, monkeypatch):
    for module, name in ((tiles, "TILE_BYTES"), (window_sums, "CHUNK_BYTES")):
        monkeypatch.setattr(module, name, 20_000)
    leaves = {n: x.requires_grad_() for n, x in leaves_of(case, torch.float32).items()}
    with Watch() as watch:
        routed = route(way, case, leaves, keep)
        routed.parents.pose.square().sum().backward()
    assert watch.called
    parents = routed.parents.pose
    slots = leaves["weight"].shape[0]
    couplings = 4 * parents.shape[:-1].numel() * slots
    votes = couplings * parents.shape[-1]
    times = max(len(routed.steps), int(case.algorithm in KEEPS_COUPLINGS))
    allowed = [*(x.nbytes for x in leaves.values()), times * couplings]
    # The sums of all iterations.
    allowed.append(case.options.get("iterations", 3) * parents.nbytes)
    if way == "native":  # What threads work in.
        allowed.append(votes // 3)
    if way == "triton":  # The gradients of poses, once for every window.
        allowed.append(4 * parents.shape[:-2].numel() * slots * case.d_in)
    assert max(x.nbytes for x in leaves.values()) <= watch.bytes <= max(allowed) < votes
