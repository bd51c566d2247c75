"""Why self-attention has no weights that stop learning [mitterreiter2023] §5: they are shared.

    g(s)   the norm of the gradient of the weights that process one child, which is s times as long

The paper says that it is the softmax, over children in attention and over parents in routing. Here
are both with matrices of each child's own and with the same for all: g falls with s wherever
weights are a child's own, and nowhere else.
"""

import pytest
import torch

from torchcaps.layers import AttentionCapsules, DenseCapsules
from torchcaps.ops import dynamic_routing
from torchcaps.types import Capsules

N, D, LAYERS, CHILD = 16, 8, 5, 3
SCALES = torch.logspace(-4, -1, 7, dtype=torch.float64)
SEEDS = range(5)
# Five layers of routing do not run out of lengths, and no softmax of attention is at one place.
STD = {"over children": 0.5, "over parents": 1.0}
SOFTMAX = pytest.mark.parametrize("softmax", ["over children", "over parents"])


def drawn(seed, softmax, *, own):
    """Matrices of the first layer by the child, children, layers above, and where these shall be.

    Of routing a matrix for each parent; of attention those of query, key and value.
    """
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    children = N if own else 1
    kinds = 3 if softmax == "over children" else N
    weights = (STD[softmax] * normal(children, kinds, D, D)).expand(N, kinds, D, D).clone()
    u = torch.nn.functional.normalize(normal(N, D), dim=-1)
    torch.manual_seed(seed)
    layers = [layer_of(softmax, own=own).double() for _ in range(LAYERS - 1)]
    for layer in layers:
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter, std=STD[softmax])
    return weights.requires_grad_(), u, layers, normal(N, D)


def layer_of(softmax, *, own):
    """One of ours; attention shares its matrices always."""
    if softmax == "over children":
        return AttentionCapsules(n=N, d=D)
    return DenseCapsules(n_in=N, d_in=D, n_out=N, d_out=D, sharing="none" if own else "all")


def first(softmax, weights, u):
    """The first layer as its formulas are, with every child's own copy of what may be shared."""
    made = torch.einsum("ikde,ie->kid", weights, u)
    if softmax == "over parents":
        return dynamic_routing(made.transpose(0, 1)[None]).parents.pose
    query, key, value = made
    return ((query @ key.T / D**0.5).softmax(-1) @ value)[None]


def gradients(softmax, weights, u, layers, target):
    """By the child, of the weights that process it, and of its pose."""
    u = u.clone().requires_grad_()
    pose = first(softmax, weights, u)
    for layer in layers:
        pose = layer(Capsules(pose, pose.norm(dim=-1))).parents.pose
    return torch.autograd.grad((pose - target).square().sum(), (weights, u))


def slope(norms):
    """Of the least line through the logarithms."""
    x, y = SCALES.log() - SCALES.log().mean(), torch.stack(norms).log()
    return float((x * (y - y.mean())).sum() / x.square().sum())


def slopes(seed, softmax, *, own):
    """Of the gradient of all weights that process the child, and of what it adds by itself."""
    weights, u, *above = drawn(seed, softmax, own=own)
    whole, part = [], []
    for scale in SCALES:
        scaled = u.clone()
        scaled[CHILD] *= scale
        by_child, _ = gradients(softmax, weights, scaled, *above)
        part.append(by_child[CHILD].norm())
        whole.append(part[-1] if own else by_child.sum(0).norm())
    return slope(whole), slope(part)


@SOFTMAX
@pytest.mark.parametrize("own", [True, False], ids=["own weights", "shared weights"])
def test_a_short_child_stops_the_learning_of_its_own_weights_alone(softmax, own):
    for seed in SEEDS:
        whole, part = slopes(seed, softmax, own=own)
        if own:
            # As the row of the claim has it for routing.
            assert whole == pytest.approx(1, abs=0.05)
        else:
            # Below 0.5, it asks of attention.
            assert abs(whole) < 0.1
        # Whatever it is that is normalised, a child moves weights by as much as it is long.
        assert part == pytest.approx(1, abs=0.1)


@SOFTMAX
def test_a_dead_child_comes_back_where_weights_are_shared(softmax):
    weights, u, *above = drawn(0, softmax, own=False)
    u[CHILD] = 0
    shared = gradients(softmax, weights, u, *above)
    # Of five layers of routing little gradient is left, for any child.
    assert shared[0].sum(0).norm() > 0.1 * shared[0].norm()
    assert shared[1][CHILD].norm() > 0.1 * shared[1].norm(dim=-1).mean()
    with torch.no_grad():
        weights[CHILD] = 0
    own = gradients(softmax, weights, u, *above)
    assert not any(gradient[CHILD].any() for gradient in own)


def test_the_formulas_are_those_of_our_layers():
    for softmax in ("over parents", "over children"):
        weights, u, *_ = drawn(0, softmax, own=False)
        layer = layer_of(softmax, own=False).double()
        with torch.no_grad():
            if softmax == "over parents":
                layer.weight.copy_(weights[0].reshape(layer.weight.shape))
            else:
                for parameter, each in zip(
                    (layer.query, layer.key, layer.value), weights[0], strict=True
                ):
                    parameter.copy_(each)
                layer.output.copy_(torch.eye(D))
        ours = layer(Capsules(u[None], u.norm(dim=-1)[None])).parents.pose
        torch.testing.assert_close(first(softmax, weights, u), ours, rtol=0, atol=1e-12)
        ours.square().sum().backward()
        (by_child,) = torch.autograd.grad(first(softmax, weights, u).square().sum(), weights)
        parameters = [layer.weight] if softmax == "over parents" else [*layer.parameters()][:3]
        expected = torch.cat([parameter.grad.flatten() for parameter in parameters])
        torch.testing.assert_close(by_child.sum(0).flatten(), expected, rtol=0, atol=1e-12)
