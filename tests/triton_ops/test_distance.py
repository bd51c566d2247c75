"""Distance routing by Triton is the plain one of the materialised votes: values, gradients, errors.

The interpreter takes a millisecond for a line of a kernel: sizes are tiny, and constants are
changed so that they still make several tiles and splits.
"""

import itertools
import re

import pytest
import torch

from fused.distance_cases import (
    ALL,
    DENSE,
    leaves_of,
    noise_like,
    numbers_of,
    results_of,
    routed_by,
)
from fused.test_distance import POSE, VOTES, WEIGHT
from fused.vote_maps import KINDS, N_OUT, SIZE, named
from torchcaps.errors import TorchcapsError
from torchcaps.layers import DenseCapsules, DistanceRouting, use_backend
from torchcaps.ops import distance_routing as plain
from torchcaps.ops import materialise
from torchcaps.ops.triton import distance, distance_routing, votes
from torchcaps.types import Capsules, VoteMap

WHOLE, TILED = 4096, 64  # all parents in one tile; four of them
slow = pytest.mark.slow
OPTIONS = [
    {},
    {"scale": "batch"},
    {"scale": "given"},
    {"detach": "votes"},
    {"detach": "votes", "scale": "batch", "squash": "exp"},
    {"iterations": 1},
    {"iterations": 4, "squash": "none", "p": 0.5},
]
# Every second case has tiles; the number of options is odd, so all of them do.
EVERYTHING = [
    (kind, options, TILED if n % 2 else WHOLE)
    for n, (kind, options) in enumerate(itertools.product(KINDS, OPTIONS))
]


def tell(monkeypatch, tile=WHOLE):
    monkeypatch.setattr(votes, "TILE", tile)
    monkeypatch.setattr(votes, "CHILDREN", 2)


def narrow(kind, *, n_in=6, **options):
    return leaves_of(kind, n_in=n_in, dtype=torch.float32, **options)


def assert_law(kind, found, device, *, keep="steps", **options):
    """Of the plain op in float64: 2e-6 of the largest value, 2e-5 of the largest gradient; where
    single precision does not reach that, about as near as the plain op in it."""
    options |= {"keep": keep}
    wide = {name: x.double() for name, x in found.items()}
    here = {name: x.to(device) for name, x in found.items()}
    exact = parts(results_of("plain", kind, wide, **options))
    theirs = parts(results_of("plain", kind, found, **options))
    mine = parts(results_of("triton", kind, here, **options))
    # What hardly depends on anything has gradients of rounding errors.
    floor = 1e-6 * max((float(x.abs().max()) for x, _ in exact.values() if x.numel()), default=0.0)
    for name, (x, bar) in exact.items():
        assert (mine[name][0].shape, mine[name][0].dtype) == (x.shape, torch.float32), name
        if not x.numel():
            continue
        scale = max(float(x.abs().max()), floor, 1e-30)
        error, other = (float((y[name][0].cpu() - x).abs().max()) / scale for y in (mine, theirs))
        assert error <= max(bar, 4 * other), (name, error, other)


def parts(results):
    """Every tensor by its name, with the bar for it."""
    values, gradients = results
    found = {f"value {n}": (x, 2e-6) for n, x in enumerate(values)}
    return found | {name: (x, 2e-5) for name, x in gradients.items()}


def law_of(kind, options, device, **shape):
    """The law with all parameters, and distances where the options say that they are given."""
    scales = options.get("iterations", 3) - 1 if options.get("scale") == "given" else 0
    found = narrow(kind, parameters=ALL, scales=scales, **shape)
    assert_law(kind, found, device, **{n: x for n, x in options.items() if x != "given"})


@pytest.mark.parametrize(
    ("kind", "options", "tile"),
    [
        (KINDS[0], {}, TILED),
        (KINDS[1], {"scale": "batch", "squash": "exp"}, WHOLE),
        (KINDS[2], {"detach": "votes"}, TILED),
        (KINDS[6], {"scale": "given"}, WHOLE),
        (KINDS[8], {"detach": "votes", "scale": "batch"}, WHOLE),
        (KINDS[7], {"iterations": 2, "scale": "batch"}, TILED),
    ],
    ids=str,
)
def test_the_law(kind, options, tile, monkeypatch, triton_device):
    tell(monkeypatch, tile)
    law_of(kind, options, triton_device)


@slow
@pytest.mark.parametrize(("kind", "options", "tile"), EVERYTHING, ids=str)
def test_the_law_with_everything(kind, options, tile, monkeypatch, triton_device):
    tell(monkeypatch, tile)
    law_of(kind, options, triton_device)


@pytest.mark.drawn(5)
@pytest.mark.parametrize("scale", ["sample", "batch"])
@pytest.mark.parametrize("tile", [WHOLE, TILED])
@pytest.mark.parametrize(
    "shape",
    [
        {"lead": ()},
        {"lead": (1,)},
        {"lead": (2, 1, 2)},
        {"lead": (17,), "n_in": 3},
        {"n_in": 1},
        {"n_out": 1},
        {"n_in": 1, "n_out": 1},
        {"n_in": 5, "n_out": 11},
        {"n_in": 3, "n_out": 5, "d_out": 17},
    ],
    ids=str,
)
def test_the_law_in_every_shape(shape, tile, scale, monkeypatch, triton_device):
    tell(monkeypatch, tile)
    law_of(DENSE, {"iterations": 2, "scale": scale}, triton_device, **shape)


@pytest.mark.parametrize("kind", [DENSE, KINDS[8]], ids=named)
def test_an_empty_batch(kind, triton_device):
    law_of(kind, {}, triton_device, lead=(0,))
    mine = {name: x.requires_grad_() for name, x in narrow(kind, lead=(0,)).items()}
    routed = routed_by("triton", kind, mine, scale="batch")
    assert routed.scale.isnan().all()
    gradients = torch.autograd.grad(routed.parents.pose.sum(), mine.values())
    assert all(not gradient.any() for gradient in gradients)


@pytest.mark.parametrize(
    "length", [0.0, pytest.param(1e-3, marks=slow), pytest.param(-1.0, marks=slow), 1e3]
)
def test_children_without_length_and_very_long_ones(length, triton_device):
    found = narrow(DENSE, parameters=ALL)
    found["length"][:, ::2] = length
    assert_law(DENSE, found, triton_device, iterations=2)


def test_zero_votes_and_huge_ones_are_finite():
    for size in (0.0, 1e-20, 1e4):
        found = {name: (x * size).requires_grad_() for name, x in narrow(DENSE).items()}
        routed = routed_by("triton", DENSE, found, keep="last", iterations=2)
        gradients = torch.autograd.grad(routed.parents.pose.sum(), found.values())
        assert all(x.isfinite().all() for x in (routed.parents.pose, *gradients))


def test_what_is_not_finite_does_not_become_a_number():
    for value in (float("nan"), float("inf")):
        found = narrow(DENSE, lead=(3,))
        found["pose"][1, 2, 0] = value
        pose = routed_by("triton", DENSE, found, iterations=2).parents.pose
        assert not pose[1].isfinite().all()
        assert pose[[0, 2]].isfinite().all()


@pytest.mark.parametrize("detach", ["none", "votes"])
def test_a_gradient_does_not_ask_who_else_wants_one(detach):
    found = narrow(DENSE, n_in=3, parameters=ALL, scales=1)
    options = {"keep": "steps", "detach": detach, "iterations": 2}
    _, together = results_of("triton", DENSE, found, **options)
    for name in found:
        alone = {key: x.clone().requires_grad_(key == name) for key, x in found.items()}
        values = numbers_of(routed_by("triton", DENSE, alone, **options))
        pairs = [(x, noise_like(x, n)) for n, x in enumerate(values) if x.requires_grad]
        sum((x * noise).sum() for x, noise in pairs).backward()
        assert torch.equal(alone[name].grad, together[name]), name


@pytest.mark.parametrize("what", ["scale", pytest.param("coupling", marks=slow)])
def test_the_gradient_of_one_output_alone(what):
    results = []
    found = {n: x.requires_grad_() for n, x in narrow(DENSE, parameters=ALL).items()}
    for way in ("triton", "plain"):
        routed = routed_by(way, DENSE, found, keep="steps")
        output = routed.scale if what == "scale" else routed.steps[1].coupling
        loss = (output * noise_like(output, 0)).sum()
        results.append(torch.autograd.grad(loss, found.values(), materialize_grads=True))
    torch.testing.assert_close(*results, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", [DENSE, pytest.param(KINDS[8], marks=slow)], ids=named)
def test_keep_changes_no_bit(kind):
    found = narrow(kind, parameters=ALL)
    kept = [routed_by("triton", kind, found, keep=keep) for keep in ("none", "last", "steps")]
    assert [len(routed.steps) for routed in kept] == [0, 1, 3]
    for routed in kept[1:]:
        assert torch.equal(routed.parents.pose, kept[0].parents.pose)
        assert torch.equal(routed.scale, kept[0].scale)
    assert torch.equal(kept[1].steps[0].coupling, kept[2].steps[2].coupling)


@pytest.mark.parametrize("half", [torch.float16, pytest.param(torch.bfloat16, marks=slow)], ids=str)
def test_half_precision_is_rounded_once(half):
    found = leaves_of(DENSE, n_in=3, dtype=half, parameters=ALL)
    wide = {name: x.float() for name, x in found.items()}
    mine, theirs = (results_of("triton", DENSE, x, keep="steps") for x in (found, wide))
    for a, b in zip(mine[0], theirs[0], strict=True):
        assert torch.equal(a, b.to(a.dtype))
    assert [x.dtype for x in mine[0]] == [half] * 11 + [torch.float32]
    assert {x.dtype for x in mine[1].values()} == {half}


def test_votes_are_made_anew_for_parents_and_for_distances(launches, monkeypatch):
    found = narrow(DENSE)
    route = lambda: routed_by("triton", DENSE, found, iterations=2)  # noqa: E731
    assert launches(route) == ["blend", "compare", "blend"]
    tell(monkeypatch, TILED)
    assert launches(route) == ["blend", "compare", "compare", "blend"]


def test_constant_votes_are_not_differentiated(launches):
    found = narrow(DENSE)
    counts = []
    for detach in ("none", "votes"):
        mine = {name: x.clone().requires_grad_() for name, x in found.items()}
        pose = routed_by("triton", DENSE, mine, detach=detach).parents.pose
        counts.append(len(launches(lambda pose=pose: pose.sum().backward())))
    # Three sums and two distances, these also to parents; or the last sum.
    assert counts == [3 + 2 * 2, 1]


def test_what_a_kernel_lacks_goes_the_fused_way(launches):
    huge = VoteMap(Capsules(torch.ones(1, 1, 128), torch.ones(1, 1)), torch.ones(1, 2, 128, 128))
    meta = VOTES._replace(
        children=Capsules(POSE.to("meta"), POSE[..., 0].to("meta")), weight=WEIGHT.to("meta")
    )
    for vote_map in (huge, meta):
        assert not launches(lambda vote_map=vote_map: distance_routing(vote_map))
    wide, found = leaves_of(DENSE, parameters=ALL), []
    assert not launches(lambda: found.append(results_of("triton", DENSE, wide, keep="steps")))
    torch.testing.assert_close(
        found[0], results_of("fused", DENSE, wide, keep="steps"), rtol=0, atol=0
    )


@pytest.mark.parametrize("scale", [pytest.param("sample", marks=slow), "batch"])
def test_a_layer_learns_and_stores_the_same_by_triton(scale):
    results = []
    for backend in ("plain", "triton"):
        torch.manual_seed(0)
        routing = DistanceRouting(scale=scale, bias=True)
        layer = DenseCapsules(n_in=6, d_in=4, n_out=3, d_out=4, routing=routing)
        use_backend(layer, backend)
        pose = torch.randn(2, 6, 4)
        layer(Capsules(pose, pose.norm(dim=-1))).parents.pose.square().sum().backward()
        found = [x.grad for x in layer.parameters()]
        results.append([*found, *([routing.running_scale] if scale == "batch" else [])])
    torch.testing.assert_close(*results, rtol=2e-5, atol=2e-6)


def test_nothing_is_as_large_as_votes(monkeypatch):
    found = narrow(DENSE, lead=(20,), n_in=12)
    found = {name: x.requires_grad_() for name, x in found.items()}
    sizes, launch = [], votes.launch

    def watched(kernel, programs, like, *arguments, **constants):
        sizes.extend(x.numel() for x in arguments if isinstance(x, torch.Tensor))
        launch(kernel, programs, like, *arguments, **constants)

    monkeypatch.setattr(votes, "launch", watched)
    routed_by("triton", DENSE, found, iterations=2).parents.pose.sum().backward()
    # One number of a child and parent; votes have four.
    assert max(sizes) == 20 * 12 * N_OUT


@pytest.mark.parametrize("detach", ["none", "votes"])
def test_flops_are_counted(detach):
    found = {name: x.requires_grad_() for name, x in narrow(DENSE).items()}
    agreement = 2 * 2 * 6 * N_OUT * SIZE
    products = agreement * SIZE
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        pose = routed_by("triton", DENSE, found, detach=detach).parents.pose
        # Votes are made for every sum and for the distances between; sums are products too.
        forward = 5 * products + 3 * agreement
        assert counter.get_total_flops() == forward
        pose.sum().backward()
    # Votes, their gradients to poses and to weights: of every sum, the first of which has no
    # couplings, and of distances, once more for parents.
    sums, distances = (3, 2) if detach == "none" else (1, 0)
    backward = 3 * sums * products + (2 * sums - (sums == 3)) * agreement + 4 * distances * products
    if detach == "votes":
        # The last couplings come from constants, and have no gradient.
        backward -= agreement
    assert counter.get_total_flops() == forward + backward


@pytest.mark.parametrize("window", [[], [4, 5, 3, 2, 3, 1, 2]], ids=["dense", "window"])
def test_operators_are_what_torch_expects(window):
    kind = KINDS[1] if window else DENSE
    found = narrow(kind, parameters=ALL)
    slots, lanes = (18, 12) if window else (6, 2)
    names = ("pose", "weight", "vote_bias", "coordinates")
    made_of = [torch.rand(lanes, slots), *(found[name] for name in names)]
    made_of = [x.clone().requires_grad_() for x in made_of]
    share = torch.rand(lanes, slots, N_OUT, requires_grad=True)
    parents = torch.randn(lanes, N_OUT, SIZE, requires_grad=True)
    given = [(distance._mixed, share), (distance._mixed, None), (distance._measured, parents)]
    for operator, first in given:
        torch.library.opcheck(
            operator._opoverload,
            (first, *made_of, "none", "vector", window),
            test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
        )


@pytest.mark.parametrize("scale", [pytest.param("sample", marks=slow), "batch"])
def test_one_graph_compiles(scale):
    torch._dynamo.reset()
    found = narrow(DENSE, lead=(1,), n_in=3, parameters=ALL)
    leaves = {name: x.requires_grad_() for name, x in found.items()}

    def pose(*given):
        given = dict(zip(leaves, given, strict=True))
        return routed_by("triton", DENSE, given, scale=scale, iterations=2).parents.pose

    compiled = torch.compile(pose, backend="aot_eager", fullgraph=True)
    results = []
    for op in (compiled, pose):
        made = op(*leaves.values())
        results.append((made, *torch.autograd.grad(made.square().sum(), leaves.values())))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


def test_second_derivatives_are_refused():
    found = {name: x.requires_grad_() for name, x in narrow(DENSE, n_in=2).items()}
    pose = routed_by("triton", DENSE, found, iterations=1).parents.pose
    (gradient,) = torch.autograd.grad(pose.square().sum(), found["pose"], create_graph=True)
    words = "by create_graph=True, route ops.materialise(vote_map) with ops.distance_routing."
    with pytest.raises(TorchcapsError, match=re.escape(words)):
        gradient.sum().backward()


@pytest.mark.parametrize(
    ("vote_map", "options"),
    [
        (VOTES._replace(weight=WEIGHT[1:]), {}),
        (VOTES._replace(children=Capsules(POSE, torch.zeros(2, 5))), {}),
        (VOTES, {"iterations": 0}),
        (VOTES, {"scale": "samples"}),
        (VOTES, {"scale": torch.zeros(2)}),
        (VOTES, {"p": 0.2}),
        (VOTES, {"bias": torch.zeros(4, 5)}),
    ],
    ids=lambda x: str(x)[:30],
)
def test_what_the_plain_op_refuses_is_refused_in_its_words(vote_map, options):
    with pytest.raises(TorchcapsError) as theirs:
        plain(materialise(vote_map), vote_map.children.activation, **options)
    with pytest.raises(TorchcapsError, match=re.escape(str(theirs.value))):
        distance_routing(vote_map, **options)


def test_children_without_lengths_are_refused():
    with pytest.raises(TorchcapsError, match="the children came without lengths"):
        distance_routing(VOTES._replace(children=Capsules(POSE)))


@pytest.mark.gpu
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_the_law_on_a_gpu(kind, options, triton_device):
    law_of(kind, options, triton_device)


@pytest.mark.gpu
@pytest.mark.parametrize("detach", ["none", "votes"])
@pytest.mark.parametrize(
    "shape",
    [
        {"lead": (64,), "n_in": 576, "n_out": 10, "d_out": 16},
        {"lead": (6,), "n_in": 300, "n_out": 200, "d_out": 16},
        {"lead": (70,), "n_in": 40, "n_out": 9, "d_out": 4},
    ],
    ids=str,
)
def test_sizes_on_a_gpu(shape, detach, triton_device):
    law_of(DENSE, {"detach": detach}, triton_device, **shape)
