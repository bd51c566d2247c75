"""Every form of every routing is the plain op of the materialised votes, on every backend."""

from itertools import count, product

import pytest
import torch

from contracts.form_laws import CUTS, assert_law, cut
from contracts.forms import (
    FORMS,
    LACKS,
    LARGE,
    ODD,
    PAIRS,
    WINDOWS,
    Case,
    Watch,
    dtype_of,
    gradients_of,
    leaves_of,
    marked,
    may_be_given,
    noise_like,
    numbers_of,
    ran_by,
    results_of,
    route,
    takes,
    windows_of,
)
from torchcaps.ops.fused import tiles, window_sums
from torchcaps.types import Window

SHARED = list(product(("none", "type", "all"), ("vector", "matrix")))
# Children and parents of one size and of two.
SIZES = {
    "fused": [{}, {}, {}, {"d_out": 7}, {"d_out": 4}, {"d_out": 7}, {"n_in": 12}],
    "native": [{"batch": (5,), "d_in": d_in, "n_out": 5} for d_in in (4, 9, 16, 9, 16)],
}
# Five iterations over larger votes have errors beyond the bars of single precision.
STEEP = ("dynamic", "distance")
# Of so many cases one is in the default tier.
DRAWN = {"fused": 18, "native": 12}


def every_case():
    """Every kind of votes meets every option; parameters and cuts take turns."""
    turns = count()
    for algorithm, way in PAIRS:
        form = FORMS[algorithm]
        first, *more = WINDOWS
        others = windows_of(algorithm, way, [*more, *([LARGE] if way == "native" else [])])
        seen = product(windows_of(algorithm, way, (None, first)), form.options)
        seen = [*seen, *product(others, form.options[:1])]
        for (sharing, pose), (window, options) in product(SHARED, seen):
            if options.get("compete") == "all" and window is None:
                continue
            turn = next(turns)
            # Small variances of few children enlarge what single precision rounds.
            easy = window not in others and sharing == "none" and "lambda_" not in options
            if algorithm == "em" and way == "native" and not easy:
                options = form.alone | options
            how = CUTS[way][turn % len(CUTS[way])]
            given = may_be_given(algorithm, way) if turn // 3 % 2 else ()
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


BATCHES = [{"batch": batch} for batch in ((), (1,), (2, 1, 3), (0,), (2, 0), (15,), (16,), (17,))]
ONE = [{"n_in": 1}, {"n_out": 1}, {"n_in": 1, "n_out": 1, "d_in": 1, "d_out": 1}]
SHAPES = [*BATCHES, *ONE, {"n_in": 3, "n_out": 5, "d_in": 25, "d_out": 17}]
SHAPES += [{"n_in": 7, "n_out": 11, "d_in": 9, "d_out": 2}]
SHAPES += [{"n_in": 9, "n_out": 33, "d_in": 4, "d_out": 17}]


def every_shape():
    single = Window((1, 1, 1), (1, 1), (1, 1))
    for algorithm, way in PAIRS:
        given = [x for x in may_be_given(algorithm, way) if not x.startswith("norm")]
        windows = windows_of(algorithm, way, (None, ODD, single))
        for shape, window in product(SHAPES, windows):
            pose = "matrix" if len(str(shape)) % 2 else "vector"
            options = FORMS[algorithm].alone
            case = Case(algorithm, "none", pose, window, tuple(given), options, **shape)
            yield way, CUTS[way][1], case


@pytest.mark.parametrize(("way", "how", "case"), marked(every_shape(), {"fused": 6, "native": 6}))
def test_batches_and_capsules_of_every_number(way, how, case, monkeypatch):
    cut(monkeypatch, way, how)
    assert_law(way, case, leaves_of(case, dtype_of(way)))


KINDS_OF_GRADIENTS = {"detach", "scale", "variant"}


def few_cases():
    """Of each form dense and through windows, with all that may be given."""
    for (algorithm, way), (pose, window) in product(PAIRS, (("vector", None), ("matrix", ODD))):
        if not windows_of(algorithm, way, [window]):
            continue
        given = may_be_given(algorithm, way)
        every = [
            options
            for options in FORMS[algorithm].options
            if options.keys() & KINDS_OF_GRADIENTS
            and options.keys() <= {*KINDS_OF_GRADIENTS, "iterations"}
            and options.get("iterations", 3) == 3
        ]
        for options in every or [{}]:
            yield way, Case(algorithm, "none", pose, window, given, options)


FEW = pytest.mark.parametrize(("way", "case"), marked(few_cases(), {"fused": 5, "native": 5}))


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


@pytest.mark.parametrize("way", ["native"])
@pytest.mark.parametrize("algorithm", ["dynamic", "distance"])
@pytest.mark.parametrize("iterations", [32, 33])
def test_a_kernel_takes_so_many_iterations(algorithm, way, iterations):
    case = Case(algorithm, options={"iterations": iterations})
    leaves = leaves_of(case, torch.float32)
    expected = way if iterations == 32 else "fused"
    assert takes(way, case, leaves) is (expected == way)
    assert ran_by(route, way, case, leaves) == expected


# How these kernels cut their work depends on whose gradient is wanted, and sums round differently.
CUT_BY_WANT = [("distance", "native"), ("dynamic", "native")]


@FEW
def test_a_gradient_does_not_ask_who_else_wants_one(way, case):
    leaves = leaves_of(case, dtype_of(way))
    together = results_of(way, case, leaves)
    bar = 1e-5 if (case.algorithm, way) in CUT_BY_WANT else 0
    for name in leaves:
        alone = {key: x.clone().requires_grad_(key == name) for key, x in leaves.items()}
        numbers = numbers_of(route(way, case, alone)).values()
        pairs = [(x, seed) for seed, x in enumerate(numbers) if x.requires_grad]
        assert pairs, name
        sum((x * noise_like(x, seed)).sum() for x, seed in pairs).backward()
        torch.testing.assert_close(alone[name].grad, together[f"of {name}"], rtol=bar, atol=bar)


@FEW
def test_the_gradient_of_each_output_alone(way, case):
    found = []
    leaves = leaves_of(case, dtype_of(way))
    for each in (way, "plain"):
        own_leaves = {name: x.clone().requires_grad_() for name, x in leaves.items()}
        numbers = numbers_of(route(each, case, own_leaves))
        found.append({name: gradients_of([x], own_leaves) for name, x in numbers.items()})
    relative, absolute = {
        ("inverted", "fused"): (0, 1e-12),
        ("dynamic", "native"): (2e-5, 2e-5),
        ("distance", "native"): (1e-4, 2e-5),
    }.get((case.algorithm, way), (0, 1e-10) if way == "fused" else (1e-4, 1e-4))
    torch.testing.assert_close(*found, rtol=relative, atol=absolute)


def taken_or_not():
    """With nothing that may be left out, with each thing alone and with everything."""
    for (algorithm, way), window in product(PAIRS, (None, Window((2, 3, 1), (2, 2), (1, 1)))):
        every = may_be_given(algorithm, "fused")
        for given in ((), *((name,) for name in every), every):
            if sum(name.startswith("norm") for name in given) == 1:
                continue
            yield way, Case(algorithm, "type", "vector", window, given, n_in=2)


@pytest.mark.parametrize(("way", "case"), marked(taken_or_not(), {"fused": 9, "native": 1}))
def test_kernels_take_all_but_what_they_are_known_to_lack(way, case):
    lacks = LACKS.get((case.algorithm, way))
    has_it = lacks in case.given or (lacks == "window" and case.window is not None)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        expected = way == "fused" or (dtype != torch.float64 and not has_it)
        leaves = leaves_of(case, dtype)
        assert takes(way, case, leaves) is expected
        assert ran_by(route, way, case, leaves) == (way if expected else "fused")


# A kernel that takes such a parameter takes one for all samples; the fused form takes many.
FOR_ALL_SAMPLES = [
    *product(["dynamic"], ["native"], ["bias", "prior"]),
    ("distance", "native", "bias"),
]


@pytest.mark.parametrize(
    ("algorithm", "way", "name"),
    [
        (algorithm, way, name)
        for algorithm, way in PAIRS
        for name in ("bias", "prior")
        if name in FORMS[algorithm].may
    ],
)
def test_some_parameters_must_speak_for_all_samples(algorithm, way, name):
    case = Case(algorithm, given=(name,), n_in=2)
    leaves = leaves_of(case, torch.float32)
    for samples, expected in ((1, way), (2, "fused")):
        given = leaves | {name: torch.randn(samples, *leaves[name].shape)}
        expected = expected if (algorithm, way, name) in FOR_ALL_SAMPLES else way
        assert takes(way, case, given) is (expected == way)
        assert ran_by(route, way, case, given) == expected


SEEN = Window((5, 5, 8), (3, 3), (1, 1))
# These kernels store the votes of some children; their own tests say of how many.
STORES_VOTES = [("distance", "native"), ("dynamic", "native")]


def large_cases():
    for algorithm, way in PAIRS:
        options = {"iterations": 2} if algorithm in ("distance", "em") else {}
        for window in windows_of(algorithm, way, (None, SEEN)):
            # Of native lanes, whole blocks.
            lanes = {"fused": 4 if window else 8, "native": 16 if window else 64}[way]
            sizes = {"batch": (lanes,), "n_in": 72, "n_out": 8, "d_in": 16}
            yield way, Case(algorithm, "none", "matrix", window, (), options, **sizes)


@pytest.mark.parametrize("keep", ["none", "steps"])
@pytest.mark.parametrize(("way", "case"), marked(large_cases(), {"fused": 4, "native": 4}))
def test_nothing_is_larger_than_it_must_be(way, case, keep, monkeypatch):
    """Never as large as the votes: what is given, or the couplings that are kept."""
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
    # For the backward pass too; EM makes a tensor of every iteration's, the others one of all.
    least = {"distance": 1, "em": 1}.get(case.algorithm, 0)
    times = least if case.algorithm == "em" else max(len(routed.steps), least)
    needed = max(times * couplings, *(x.nbytes for x in leaves.values()))
    if (case.algorithm, way) in STORES_VOTES:
        assert needed <= watch.bytes <= votes // 4
    else:
        assert watch.bytes == needed
    assert watch.bytes < votes


@pytest.mark.parametrize("wanted", ["bias", "scale"])
def test_what_is_no_vote_has_its_gradient_alone(wanted):
    options = {"detach": "votes", "scale": "given"}
    leaves = leaves_of(case := Case("distance", given=("bias",), options=options), torch.float64)
    leaves[wanted].requires_grad_()
    found = [
        torch.autograd.grad(route(way, case, leaves).parents.pose.square().sum(), leaves[wanted])
        for way in ("plain", "fused")
    ]
    assert found[0][0].any()
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


def test_a_start_in_another_precision_is_scaled_too():
    case = Case("inverted", given=("start",), options={"scale": 0.25, "iterations": 1})
    leaves = leaves_of(case, torch.float32)
    leaves["start"] = leaves["start"].double()
    plain, fused = (route(way, case, leaves).parents.pose for way in ("plain", "fused"))
    assert fused.dtype == torch.float32
    torch.testing.assert_close(fused, plain)
