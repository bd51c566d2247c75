"""Native dynamic routing is the plain one of the materialised votes: values, gradients, errors."""

import subprocess
import sys

import pytest
import torch

from ops.fused.vote_maps import KINDS, both, leaves, named
from ops.fused.vote_maps import vote_map as map_of
from torchcaps.ops import dynamic_routing as plain
from torchcaps.ops import materialise, native
from torchcaps.ops.costs import COSTS
from torchcaps.ops.native import build
from torchcaps.ops.native import dynamic as kernel

DENSE = ("none", "vector", None)
NO_WINDOW = [kind for kind in KINDS if kind[2] is None]
ALL = ("vote_bias", "coordinates", "bias", "prior")


@pytest.fixture(autouse=True)
def _library():
    if not native.available():
        pytest.skip("there is no C++ compiler, or TORCHCAPS_NATIVE=0")


def errors(kind, found, **options):
    """Against the plain op in float64: the largest error of values and of each gradient, relative
    to the largest number of its tensor."""
    exact = {name: x.double() for name, x in found.items()}
    (expected, theirs), _ = both(plain, native.dynamic_routing, kind, exact, **options)
    _, (result, fast) = both(plain, native.dynamic_routing, kind, found, **options)
    pairs = {"values": (result, expected)} | {n: (fast[n], theirs[n]) for n in fast}
    largest = max(float(x.abs().max()) for x in theirs.values())
    found = {}
    for name, (a, b) in pairs.items():
        assert a.shape == b.shape
        scale = float(b.abs().max())
        # Under some detach a gradient is zero in exact numbers.
        scale = scale if scale > 1e-6 * largest else max(largest, 1e-30)
        found[name] = float((a.double() - b).abs().max()) / scale if a.numel() else 0.0
    return found


def assert_law(kind, found, values=2e-6, gradients=2e-5, **options):
    for name, error in errors(kind, found, **options).items():
        assert error <= (values if name == "values" else gradients), (name, error)


def made(*, batch, n_in, n_out, d_in, d_out):
    return {
        "pose": torch.randn(batch, n_in, d_in) / d_in**0.5,
        "weight": torch.randn(n_in, n_out, d_out, d_in) * 0.3,
    }


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
        # more than a group of lanes, than stored votes, than a tile of children
        (300, 5, 3, 4, 4),
        (17, 6, 300, 8, 16),
        (4, 150, 10, 8, 16),
    ],
    ids=str,
)
def test_ragged_sizes(sizes, detach):
    names = ("batch", "n_in", "n_out", "d_in", "d_out")
    assert_law(DENSE, made(**dict(zip(names, sizes, strict=True))), detach=detach, keep="last")


# Parents of whole vectors, whose gradients fold without a rest; more samples than a group has.
# Couplings of the last iteration are kept for the backward pass, or are too large for that.
@pytest.mark.drawn(4)
@pytest.mark.parametrize("most", [0, 16 << 20], ids=["made again", "kept"])
@pytest.mark.parametrize("detach", ["votes", "states", "coupling"])
@pytest.mark.parametrize("d_in", [1, 3, 8, 17])
@pytest.mark.parametrize(("sharing", "shared"), [("none", (9,)), ("type", (3,)), ("all", ())])
def test_poses_that_fill_vectors(monkeypatch, sharing, shared, d_in, detach, most):
    monkeypatch.setattr(kernel, "KEPT_BYTES", most)
    for batch, d_out in ((1, 16), (17, 32), (300, 16)):
        found = {
            "pose": torch.randn(batch, 9, d_in) / d_in**0.5,
            "weight": torch.randn(*shared, 5, d_out, d_in) * 0.3,
        }
        assert_law((sharing, "vector", None), found, detach=detach)
        assert_law((sharing, "vector", None), found, detach=detach, iterations=1)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("kind", NO_WINDOW, ids=named)
def test_any_number_of_threads(kind, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = leaves(kind, dtype=torch.float32, parameters=ALL, lead=(19,))
        assert_law(kind, {name: x * 0.5 for name, x in found.items()}, keep="steps")
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", ["hinton", "exp"])
@pytest.mark.parametrize("detach", ["none", "votes"])
def test_the_standard_size_stays_within_its_bounds(detach, kind):
    assert_law(
        DENSE, made(batch=6, n_in=1152, n_out=10, d_in=8, d_out=16), detach=detach, squash=kind
    )


@pytest.mark.parametrize("name", ["pose", "weight", "bias", "prior"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_seen_where_the_plain_op_sees_it(name, bad):
    found = leaves(DENSE, dtype=torch.float32, parameters=("bias", "prior"), lead=(20,))
    found[name].view(-1)[3] = bad
    results = []
    for op in (lambda vm, **rest: plain(materialise(vm), **rest), native.dynamic_routing):
        own_leaves = {key: x.clone().requires_grad_() for key, x in found.items()}
        rest = {"bias": own_leaves["bias"], "prior": own_leaves["prior"], "keep": "last"}
        routed = op(map_of(DENSE, own_leaves), **rest)
        gradients = torch.autograd.grad(routed.parents.pose.sum(), own_leaves.values())
        results.append((routed.parents.pose, routed.steps[0].coupling, *gradients))
    for theirs, ours in zip(*results, strict=True):
        assert torch.equal(theirs.isfinite(), ours.isfinite())


def test_a_prior_of_minus_infinity_closes_a_way():
    found = leaves(DENSE, dtype=torch.float32, parameters=("prior",))
    found["prior"][:, 2] = -float("inf")
    routed = native.dynamic_routing(map_of(DENSE, found), prior=found["prior"], keep="last")
    coupling = routed.steps[0].coupling
    assert (coupling[..., 2] == 0).all()
    torch.testing.assert_close(coupling.sum(-1), torch.ones(2, 12))


ROUTE = """
import hashlib, torch
from torchcaps.layers import DenseCapsules, use_backend
from torchcaps.ops import native
from torchcaps.types import Capsules

torch.manual_seed(0)
pose = torch.randn(33, 40, 8)
children = Capsules(pose.requires_grad_(), pose.detach().norm(dim=-1))
torch.set_num_threads(2)
assert native.available()
seen = hashlib.sha256()
for name in ("distance", "dynamic", "em"):
    layer = DenseCapsules(n_in=40, d_in=8, n_out=5, d_out=16, routing=name)
    use_backend(layer, "native")
    for _ in range(8):
        parents = layer(children).parents.pose
        for x in (parents, *torch.autograd.grad(parents.square().sum(), (pose, layer.weight))):
            seen.update(x.detach().numpy().tobytes())
print(seen.hexdigest())
"""


@pytest.mark.slow
def test_four_processes_at_once_route_alike():
    running = [
        subprocess.Popen([sys.executable, "-c", ROUTE], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = [each.communicate(timeout=300)[0] for each in running]
    assert [each.returncode for each in running] == [0] * 4
    assert len(set(said)) == 1
    assert len(said[0].strip()) == 64


# Their OpenMP would wait for threads that a forked child does not have.
FORK = """
import os, signal
import torch
from torchcaps.ops import native
from torchcaps.types import Capsules, VoteMap
torch.set_num_threads(3)
vote_map = VoteMap(Capsules(torch.randn(37, 50, 8)), torch.randn(50, 6, 16, 8))
def routed():
    return native.dynamic_routing(vote_map).parents.pose
def of_a_child():
    child = os.fork()
    if not child:
        signal.alarm(60)
        torch.save(routed(), PATH)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return torch.load(PATH)
torch.ones(1 << 20).add(1)  # its threads have begun
before = of_a_child()  # the kernels are not loaded
parents = routed()
assert native.available()
assert torch.equal(before, parents)
assert torch.equal(of_a_child(), parents)
"""


def test_a_forked_child_routes_as_its_parent_does(tmp_path):
    program = f"PATH = {str(tmp_path / 'parents')!r}\n"
    subprocess.run([sys.executable, "-c", program + FORK], timeout=300, check=True)


def test_threads_of_their_own_route_alike(monkeypatch):
    # PyTorch for Linux brings GNU's.
    assert build._team().run or not sys.platform.startswith("linux")
    found = leaves(DENSE, dtype=torch.float32)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    fast = native.dynamic_routing(map_of(DENSE, found)).parents.pose
    build.library().torchcaps_use_team(build._Team())
    try:
        own = native.dynamic_routing(map_of(DENSE, found)).parents.pose
    finally:
        build.library().torchcaps_use_team(build._team())
    assert torch.equal(fast, own)


def test_flops_are_counted():
    batch, n_in, n_out, d_in, d_out = 2, 6, 5, 8, 4
    found = made(batch=batch, n_in=n_in, n_out=n_out, d_in=d_in, d_out=d_out)
    agreement = 2 * batch * n_in * n_out * d_out
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        native.dynamic_routing(map_of(DENSE, found), iterations=3)
    # Votes three times; two iterations with an agreement and a sum.
    assert counter.get_total_flops() == 3 * agreement * d_in + 4 * agreement


@pytest.mark.drawn(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "sizes", [(128, 1152, 10, 8, 16), (128, 64, 196, 8, 16), (640, 64, 10, 16, 5)]
)
def test_a_workspace_is_near_that_of_the_kernel(sizes, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    asked, found, plan = [], [], build.library().torchcaps_dynamic_plan
    for name in ("forward", "backward"):
        operator = getattr(kernel.mixed, name)

        def call(*arguments, operator=operator):
            asked.append(COSTS[operator.overloadpacket](*arguments).workspace)
            return operator(*arguments)

        monkeypatch.setattr(kernel.mixed, name, call)

    def planned(job, backward):
        plan(job, backward)
        found.append(4 * job._obj.workspace_size)

    monkeypatch.setattr(build.library(), "torchcaps_dynamic_plan", planned)
    leaves = made(**dict(zip(("batch", "n_in", "n_out", "d_in", "d_out"), sizes, strict=True)))
    leaves = {name: x.requires_grad_() for name, x in leaves.items()}
    native.dynamic_routing(map_of(DENSE, leaves)).parents.pose.sum().backward()
    assert len(asked) == len(found) == 2
    for estimated, real in zip(asked, found, strict=True):
        # What a thread keeps of a few children is told by nobody.
        assert 0.6 * real - 1.5e6 * threads <= estimated <= 1.6 * real
