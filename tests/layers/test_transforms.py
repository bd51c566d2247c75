"""What torch.func, forward mode and tracers find: votes that are made, by themselves; who told a
layer not to make them is told that this has no such derivative, which would come out as zero."""

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.testing import assert_close

from torchcaps import Capsules, TorchcapsError
from torchcaps.layers import ROUTINGS, DenseCapsules, DistanceRouting, use_backend
from torchcaps.ops import fused, native
from torchcaps.types import VoteMap

NONE = r"has gradients by backward\(\), but none in forward mode or through torch.func; for these"
# torch.func scripts its own formulas.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]


@pytest.fixture(autouse=True)
def votes_are_many(monkeypatch):
    monkeypatch.setattr("torchcaps.ops.backend.FUSED_FROM", 0)
    monkeypatch.setattr("torchcaps.ops.backend.LANES_FROM", 0)


class Sums(nn.Module):
    def __init__(self, name, backend):
        super().__init__()
        torch.manual_seed(0)
        self.layer = DenseCapsules(n_in=6, d_in=4, n_out=3, d_out=4, routing=name)
        use_backend(self, backend)
        self.register_buffer("activation", torch.rand(5, 6))

    def forward(self, pose):
        children = Capsules(pose, self.activation[: pose.shape[0]])
        return self.layer(children).parents.pose.square().sum()


def case(name, backend):
    return Sums(name, backend), torch.randn(5, 6, 4), torch.randn(5, 6, 4)


def in_forward_mode(sums, pose, tangent):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(sums(forward_ad.make_dual(pose, tangent))).tangent


DERIVATIVES = {
    "jvp": lambda sums, pose, tangent: torch.func.jvp(sums, (pose,), (tangent,))[1],
    "grad": lambda sums, pose, _: torch.func.grad(sums)(pose),
    "jacrev": lambda sums, pose, _: torch.func.jacrev(sums)(pose),
    "vmap of grad": lambda sums, pose, _: torch.func.vmap(torch.func.grad(sums))(pose.unsqueeze(1)),
    "forward mode": in_forward_mode,
}


@pytest.mark.parametrize("name", ROUTINGS)
@pytest.mark.parametrize("how", DERIVATIVES)
def test_a_derivative_is_that_of_the_votes(name, how):
    found, expected = (DERIVATIVES[how](*case(name, each)) for each in ("auto", "plain"))
    assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert bool((expected != 0).any())


@pytest.mark.parametrize("backend", ["fused", "native"])
@pytest.mark.parametrize("name", fused.ROUTINGS)
@pytest.mark.parametrize("how", DERIVATIVES)
def test_it_is_refused_where_votes_are_not_made(name, how, backend):
    sums, pose, tangent = case(name, backend)
    with pytest.raises(TorchcapsError, match=NONE):
        DERIVATIVES[how](sums, pose, tangent)
    sums(pose.requires_grad_()).backward()
    assert bool((pose.grad != 0).any())


def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, backend="aot_eager")


# Without gradients by backward(), whose operators PyTorch itself would refuse.
@pytest.mark.parametrize("how", ["jvp", "grad", "forward mode"])
def test_a_compiled_derivative_is_that_of_the_votes(how):
    expected = DERIVATIVES[how](*case("dynamic", "plain"))
    sums, *given = case("dynamic", "auto")
    sums.requires_grad_(False)
    found = compiled(lambda pose, tangent: DERIVATIVES[how](sums, pose, tangent))(*given)
    assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert bool((expected != 0).any())


@pytest.mark.parametrize("how", ["jvp", "grad", "forward mode"])
def test_it_is_refused_in_compiled_graphs_too(how):
    sums, *given = case("dynamic", "fused")
    sums.requires_grad_(False)
    with pytest.raises(TorchcapsError, match=NONE):
        compiled(lambda pose, tangent: DERIVATIVES[how](sums, pose, tangent))(*given)


def test_a_graph_made_before_is_not_used_in_forward_mode():
    sums, pose, tangent = case("dynamic", "fused")
    sums.requires_grad_(False)
    graph = compiled(sums)
    assert_close(graph(pose), sums(pose))
    with pytest.raises(TorchcapsError, match=NONE):
        in_forward_mode(graph, pose, tangent)


@pytest.mark.parametrize("how", ["grad", "jacrev", "vmap of grad"])
def test_mean_distances_are_not_moved_within_a_transform(how):
    sums, pose, tangent = case(DistanceRouting(scale="batch"), "plain")
    with pytest.raises(TorchcapsError, match=r"transform of torch\.func does not allow; call eval"):
        DERIVATIVES[how](sums, pose, tangent)
    assert bool((DERIVATIVES[how](sums.eval(), pose, tangent) != 0).any())


def test_operators_refuse_it_too():
    children = Capsules(torch.rand(2, 5, 4))

    def route(weight):
        return native.dynamic_routing(VoteMap(children, weight)).parents.pose

    weight = torch.rand(5, 3, 6, 4)
    with pytest.raises(TorchcapsError, match=NONE):
        torch.func.jvp(route, (weight,), (weight,))


@pytest.mark.parametrize("name", ROUTINGS)
def test_a_traced_layer_asks_for_no_operator_of_ours(name):
    sums, pose, _ = case(name, "auto")
    traced = torch.jit.trace(sums, pose)
    assert "torchcaps::" not in str(traced.graph)
    assert_close(traced(pose), sums(pose), rtol=1e-5, atol=0)
