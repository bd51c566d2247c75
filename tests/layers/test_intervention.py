"""Couplings and capsules that somebody changes on the way through layers and networks."""

import pytest
import torch

import torchcaps as tc
from error_text import text_of
from layers.test_errors import network, stack
from torchcaps import Capsules
from torchcaps.layers import (
    ConvCapsules,
    DenseCapsules,
    route_concurrently,
    route_sequentially,
    use_backend,
)


def images():
    return torch.rand(3, 1, 20, 20)


@pytest.mark.parametrize("routing", ["dynamic", "uniform", "em", "distance", "self_attention"])
def test_a_network_without_change_keeps_every_bit(routing):
    model, x = network(routing), images()
    bare, coupled = model(x), model(x, couple=lambda c: c, intervene={"primary": lambda u: u})
    assert torch.equal(bare.scores, coupled.scores)


@pytest.mark.parametrize("backend", ["plain", "fused", "native"])
def test_a_layer_takes_the_function_whatever_its_backend(backend):
    for layer, n in (
        (DenseCapsules(n_in=8, d_in=4, n_out=3, d_out=5), 8),
        (ConvCapsules(child_grid=(3, 4, 2), d_in=4, types=3, d_out=5, kernel=2), 24),
    ):
        use_backend(layer, backend)
        children = Capsules(torch.rand(2, n, 4))
        found = layer(children, keep="last", couple=lambda c: c.square())
        use_backend(layer, "plain")
        expected = layer(children, keep="last", couple=lambda c: c.square())
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
        assert found.steps[0].children is children
        assert found.steps[0].parents.pose.shape == found.parents.pose.shape


def test_a_head_takes_both():
    head = tc.layers.CapsuleHead.after(torch.nn.Identity(), image=(3, 4, 5), n_classes=4)
    x = torch.rand(2, 3, 4, 5)
    bare = head(x, keep="last")
    even = head(x, keep="last", couple={"classes": lambda c: torch.full_like(c, 0.25)})
    assert float(even.trace[0].routed.steps[-1].coupling.std()) == 0
    assert not torch.equal(even.scores, bare.scores)
    dead = head(x, intervene={"primary": lambda u: u._replace(pose=0 * u.pose)})
    assert not dead.scores.any()
    silent = head(x, intervene={"classes": tc.analysis.silence(2)}).scores
    torch.testing.assert_close(silent[:, :2], bare.scores[:, :2], rtol=0, atol=0)
    assert not silent[:, 2].any()


def test_one_function_is_for_all_layers_and_a_named_one_for_its_own():
    model, x = network(), images()
    seen = []
    model(x, couple=lambda c: seen.append(tuple(c.shape)) or c)
    assert seen == [(3, 6, 5), (3, 5, 3)]
    even = model(x, keep="last", couple={"hidden_2": lambda c: torch.full_like(c, 0.2)}).trace
    bare = model(x, keep="last").trace
    assert even[0].routed.steps[0].coupling.eq(0.2).all()
    assert torch.equal(even[0].children.pose, bare[0].children.pose)
    assert not torch.equal(even[1].children.pose, bare[1].children.pose)
    assert not torch.equal(even[1].routed.steps[0].coupling, bare[1].routed.steps[0].coupling)


def test_even_couplings_make_the_uniform_twin():
    model, x = network(prior="zero"), images()
    twin = network("uniform")
    twin.load_state_dict(model.state_dict())
    even = model(x, couple=lambda c: torch.full_like(c, 1 / c.shape[-1]))
    torch.testing.assert_close(even.scores, twin(x).scores, rtol=0, atol=1e-6)


def test_capsules_are_silenced_on_their_way_up():
    model, x = network(), images()

    def silence(capsules):
        keep = torch.ones(capsules.pose.shape[1])
        keep[2] = 0
        return Capsules(capsules.pose * keep[:, None], capsules.activation * keep)

    out = model(x, keep="last", intervene={"hidden_2": silence})
    first, second = out.trace
    assert second.children.pose[:, 2].eq(0).all()
    assert torch.equal(first.routed.parents.pose, second.children.pose)
    # What routing gave stays in its step.
    assert not first.routed.steps[0].parents.pose[:, 2].eq(0).any()
    classes = model(x, intervene={"classes": silence})
    assert classes.scores[:, 2].eq(0).all()
    assert classes.classes.activation[:, 2].eq(0).all()
    primary = model(x, keep="last", intervene={"primary": silence})
    assert primary.trace[0].children.pose[:, 2].eq(0).all()


def test_gradients_go_through_both():
    model, x = network(), images()
    gate = torch.ones(6, 5, requires_grad=True)
    scale = torch.ones(5, 1, requires_grad=True)
    out = model(
        x,
        couple={"hidden_2": lambda c: c * gate},
        intervene={"hidden_2": lambda u: u._replace(pose=u.pose * scale)},
    )
    out.scores[:, 0].sum().backward()
    for each in (gate, scale, model.layers["hidden_2"].weight):
        assert each.grad.abs().sum() > 0


def inverted_stack():
    layers = {name: layer.double() for name, layer in stack().items()}
    return layers, Capsules(torch.randn(2, 24, 4, dtype=torch.float64))


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_layers_that_route_at_once_replace_the_last_step_that_counts(iterations):
    layers, u = inverted_stack()
    given = {
        "hidden": lambda c: torch.full_like(c, 0.1),
        "classes": lambda c: torch.full_like(c, 0.5),
    }
    made = {
        keep: route_concurrently(layers, u, iterations=iterations, keep=keep, couple=given)
        for keep in ("none", "last", "steps")
    }
    votes = {name: layer.votes for name, layer in layers.items()}
    norms = {name: layer.routing.norm for name, layer in layers.items()}
    hidden = norms["hidden"](0.1 * votes["hidden"](u).sum(1))
    classes = norms["classes"](0.5 * votes["classes"](Capsules(hidden)).sum(1))
    for routed in made.values():
        # However they got there, their last couplings make them.
        torch.testing.assert_close(routed["classes"].parents.pose, classes, rtol=0, atol=1e-12)
    for name, value in (("hidden", 0.1), ("classes", 0.5)):
        assert made["last"][name].steps[0].coupling.eq(value).all()
        assert made["steps"][name].steps[-1].coupling.eq(value).all()
    if iterations == 3:
        assert not made["steps"]["hidden"].steps[0].coupling.eq(0.1).any()


def test_layers_that_route_at_once_see_changed_capsules_in_every_iteration():
    layers, u = inverted_stack()
    silent = {"hidden": lambda made: Capsules(made.pose * 0)}
    routed = route_concurrently(layers, u, iterations=3, intervene=silent, keep="steps")
    for step in routed["classes"].steps:
        assert step.children.pose.eq(0).all()
    # The layer itself goes on from what its routing gave.
    bare = route_concurrently(layers, u, iterations=3, keep="steps")["hidden"].steps
    for one, other in zip(routed["hidden"].steps, bare, strict=True):
        assert torch.equal(one.parents.pose, other.parents.pose)
    assert route_sequentially(layers, u, intervene=silent)["hidden"].parents.pose.eq(0).all()


def test_deepcaps_takes_both():
    model = tc.create_model("rem_deepcaps", image=(1, 16, 16), n_classes=3).eval()
    x = torch.rand(2, 1, 16, 16)
    bare = model(x, keep="last")
    assert torch.equal(bare.scores, model(x, couple=lambda c: c).scores)
    out = model(
        x,
        keep="last",
        couple={"cell_4_skip": torch.zeros_like},
        intervene={"classes": lambda u: Capsules(u.pose * 2, u.activation * 2)},
    )
    assert out.trace[0].routed.steps[0].coupling.eq(0).all()
    assert not torch.equal(out.scores, bare.scores)


def half_of_all(model, x):
    """A call that changes couplings and capsules."""
    changes = {"primary": lambda u: u._replace(pose=u.pose / 2)}
    return model(x, couple=lambda c: c / 2, intervene=changes).scores


def test_both_work_where_there_are_no_values_to_look_at():
    model, x = network(), images()
    expected = half_of_all(model, x)
    each = torch.func.vmap(lambda one: half_of_all(model, one.unsqueeze(0)).squeeze(0))(x)
    torch.testing.assert_close(each, expected, rtol=0, atol=1e-6)
    compiled = torch.compile(half_of_all, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(model, x), expected, rtol=0, atol=1e-6)
    assert half_of_all(model.to("meta"), x.to("meta")).shape == expected.shape


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_a_function_that_writes_into_its_capsules_is_told(mode):
    """The step that a trace keeps of routing was overwritten."""

    def halve(capsules):
        capsules.pose.mul_(0.5)
        return capsules

    with mode():
        said = text_of(lambda: network()(images(), intervene={"hidden_2": halve}))
    assert said == (
        "the function that intervenes in layer 'hidden_2' must leave the capsules that it is given "
        "as they are, for a trace keeps them, but it wrote into them; write "
        "capsules._replace(pose=0.5 * capsules.pose)."
    )
