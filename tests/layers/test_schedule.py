"""The order of layers: one after the other, or all at once without what reaches no output."""

from functools import partial

import pytest
import torch
from torch.nn.utils import prune, spectral_norm, weight_norm

from torchcaps.layers import (
    ConvCapsules,
    DenseCapsules,
    DynamicRouting,
    InvertedRouting,
    route_concurrently,
    route_sequentially,
    steps_in_a_row,
    use_backend,
)
from torchcaps.types import Capsules


def stack(iterations=3, routing=None):
    def rule():
        return InvertedRouting(iterations=iterations) if routing is None else routing

    layers = {
        "windows": ConvCapsules(
            child_grid=(3, 4, 2), d_in=4, types=3, d_out=4, kernel=2, routing=rule()
        ),
        "hidden": DenseCapsules(n_in=18, d_in=4, n_out=5, d_out=3, routing=rule()),
        "classes": DenseCapsules(n_in=5, d_in=3, n_out=2, d_out=4, routing=rule()),
    }
    for layer in layers.values():
        layer.double()
    return layers


def children():
    return Capsules(torch.randn(2, 24, 4, dtype=torch.float64))


@pytest.mark.parametrize("iterations", [1, 2, 3, 4, 5])
def test_what_cannot_reach_the_output_changes_nothing(iterations):
    layers, u = stack(iterations), children()
    none, last, steps = (
        route_concurrently(layers, u, iterations=iterations, keep=keep)
        for keep in ("none", "last", "steps")
    )
    for each in (last, steps):
        assert torch.equal(each["classes"].parents.pose, none["classes"].parents.pose)
    for above, name in enumerate(reversed(layers)):
        assert none[name].steps == ()
        assert len(last[name].steps) == 1
        assert len(steps[name].steps) == iterations
        reached = max(iterations - above, 1)
        kept = steps[name].steps[reached - 1]
        assert torch.equal(last[name].steps[0].parents.pose, kept.parents.pose)
        assert torch.equal(last[name].steps[0].coupling, kept.coupling)
        assert torch.equal(none[name].parents.pose, kept.parents.pose)


def calls(layers, keep, iterations):
    """How often each layer made a step, and how often votes."""
    made = {name: [0, 0] for name in layers}
    with pytest.MonkeyPatch.context() as patch:
        for name, layer in layers.items():
            for place, method in enumerate(("step", "votes")):
                original = getattr(layer, method)

                def counted(*args, _name=name, _place=place, _original=original, **options):
                    made[_name][_place] += 1
                    return _original(*args, **options)

                patch.setattr(layer, method, counted, raising=False)
        route_concurrently(layers, children(), iterations=iterations, keep=keep)
    return {name: tuple(each) for name, each in made.items()}


@pytest.mark.parametrize(
    ("iterations", "keep", "steps", "votes"),
    [
        (1, "none", [1, 1, 1], [1, 1, 1]),
        # The classes route at t = 2 on the hidden layer of t = 1, whose votes they have.
        (2, "none", [1, 1, 2], [1, 1, 1]),
        (3, "last", [1, 2, 3], [1, 1, 2]),
        (4, "none", [2, 3, 4], [1, 2, 3]),
        (3, "steps", [3, 3, 3], [1, 2, 2]),
    ],
)
def test_steps_that_are_made(iterations, keep, steps, votes):
    """Votes are made anew only for new children; the lowest ones never change."""
    made = calls(stack(iterations), keep, iterations)
    assert list(made.values()) == list(zip(steps, votes, strict=True))


def test_layers_that_route_together_are_one_graph():
    layers, u = torch.nn.ModuleDict(stack(3)), children()

    def pose(u):
        routed = route_concurrently(layers, u, iterations=3)
        return routed["classes"].parents.pose

    torch._dynamo.reset()
    compiled = torch.compile(pose, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(u), pose(u), rtol=0, atol=1e-12)


def test_children_of_a_step_are_those_it_routed():
    layers, u = stack(3), children()
    routed = route_concurrently(layers, u, iterations=3, keep="steps")
    windows, hidden = routed["windows"].steps, routed["hidden"].steps
    assert all(step.children is u for step in windows)
    assert hidden[0].children is windows[0].parents
    # What was below an iteration ago.
    assert hidden[1].children is windows[0].parents
    assert hidden[2].children is windows[1].parents


@pytest.mark.parametrize("keep", ["none", "last", "steps"])
def test_one_after_the_other(keep):
    layers, u = stack(2), children()
    routed = route_sequentially(layers, u, keep=keep)
    assert list(routed) == list(layers)
    for name, layer in layers.items():
        own = layer(u, keep=keep)
        assert torch.equal(routed[name].parents.pose, own.parents.pose)
        assert len(routed[name].steps) == len(own.steps)
        u = routed[name].parents


def critical_path(layers, u, iterations, schedule):
    """How many of the steps that a schedule makes wait for one another, up to the last: a step for
    its children and for the step before it in its layer."""
    waits, kept = {id(u): 0}, []
    with pytest.MonkeyPatch.context() as patch:
        for layer in layers.values():

            def step(children, parents, *, _step=layer.step, **options):
                kept.append(_step(children, parents, **options))
                needed = [children] if parents is None else [children, parents]
                waits[id(kept[-1].parents)] = 1 + max(waits[id(each)] for each in needed)
                return kept[-1]

            def forward(children, *, _forward=layer.forward, **options):
                kept.append(_forward(children, **options))
                waits[id(kept[-1].parents)] = waits[id(children)] + len(kept[-1].steps)
                return kept[-1]

            patch.setattr(layer, "step", step)
            patch.setattr(layer, "forward", forward)
        if schedule == "concurrent":
            routed = route_concurrently(layers, u, iterations=iterations)
        else:
            routed = route_sequentially(layers, u, keep="steps")
    return waits[id(routed["classes"].parents)]


@pytest.mark.parametrize("iterations", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("n_layers", [2, 3, 4, 5, 6])
def test_concurrent_steps_wait_for_fewer_others(n_layers, iterations):
    """[tsai2020] §4.1: N layers of capsules, of which the lowest does not route, take
    (N − 1) + (t − 1) steps that wait for one another, and t (N − 1) in sequence."""
    names = [*(f"hidden_{k}" for k in range(n_layers - 2)), "classes"]
    layers = {
        name: DenseCapsules(
            n_in=4, d_in=3, n_out=4, d_out=3, routing=InvertedRouting(iterations=iterations)
        )
        for name in names
    }
    u = Capsules(torch.randn(2, 4, 3))
    concurrent, sequential = (
        critical_path(layers, u, iterations, schedule) for schedule in ("concurrent", "sequential")
    )
    assert concurrent == (n_layers - 1) + (iterations - 1)
    assert sequential == iterations * (n_layers - 1)
    assert (concurrent < sequential) == (n_layers > 2 and iterations > 1)
    for schedule, found in (("concurrent", concurrent), ("sequential", sequential)):
        assert steps_in_a_row(n_layers - 1, iterations, schedule) == found


@pytest.mark.parametrize(
    "make", [partial(prune.l1_unstructured, amount=0.5), weight_norm, spectral_norm]
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_weights_that_a_hook_makes_are_made_where_layers_route_together(make):
    layers, plain, u = stack(), stack(), children()
    for layer in layers.values():
        make(layer.eval(), name="weight")
        first = next(x for name, x in layer.named_parameters() if name.startswith("weight_"))
        first.data.mul_(-3)
    found = route_concurrently(layers, u, iterations=2)
    for layer, other in zip(layers.values(), plain.values(), strict=True):
        layer(Capsules(torch.zeros(1, layer.n_in, layer.d_in, dtype=torch.float64)))
        other.weight = torch.nn.Parameter(layer.weight.detach())
    expected = route_concurrently(plain, u, iterations=2)
    assert torch.equal(found["classes"].parents.pose, expected["classes"].parents.pose)


def test_a_layer_in_a_wrapper_that_hands_on_whatever_comes_is_routed():
    layers, u = stack(), children()
    expected = route_sequentially(layers, u)["classes"].parents.pose
    wrapped = {**layers, "classes": torch.nn.DataParallel(layers["classes"])}
    assert torch.equal(route_sequentially(wrapped, u)["classes"].parents.pose, expected)


@pytest.mark.parametrize("keep", ["none", "last", "steps"])
def test_hooks_fire_at_every_iteration_where_layers_route_together(keep):
    layers, u = stack(), children()
    expected = route_concurrently(layers, u, iterations=3, keep=keep)
    seen = {name: [] for name in layers}

    def watch(name):
        def hook(layer, given, routed):
            assert layer is layers[name]
            seen[name].append((given[0].pose, routed.parents.pose, len(routed.steps)))

        layers[name].register_forward_hook(hook)

    for name in layers:
        watch(name)
    found = route_concurrently(layers, u, iterations=3, keep=keep)
    for name in layers:
        assert torch.equal(found[name].parents.pose, expected[name].parents.pose)
        assert torch.equal(found[name].parents.pose, seen[name][-1][1])
        assert len(found[name].steps) == len(expected[name].steps)
        assert all(n == (keep != "none") for _, _, n in seen[name])
    # Those that no longer reach the output are not computed.
    often = {"windows": 3, "hidden": 3, "classes": 3}
    if keep != "steps":
        often |= {"windows": 1, "hidden": 2}
    assert {name: len(each) for name, each in seen.items()} == often
    assert all(pose is u.pose for pose, _, _ in seen["windows"])
    assert torch.equal(seen["hidden"][0][0], seen["windows"][0][1])
    assert "forward" not in vars(layers["hidden"])


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_who_watches_a_layer_does_not_change_what_a_hook_makes_of_its_weights():
    """A hook of spectral_norm moves them whenever it is called, which was once an iteration."""
    found, directions = [], []
    for is_watched in (False, True):
        torch.manual_seed(0)
        layers = stack()
        spectral_norm(layers["hidden"].train(), name="weight")
        if is_watched:
            layers["hidden"].register_forward_hook(lambda *_: None)
        found.append(route_concurrently(layers, children(), iterations=3)["classes"].parents.pose)
        directions.append(layers["hidden"].weight_u)
        # The next step of an optimiser makes it anew.
        assert len(layers["hidden"]._forward_pre_hooks) == 1
    assert torch.equal(*found)
    assert torch.equal(*directions)


def half(capsules):
    return capsules._replace(pose=capsules.pose / 2)


def test_children_that_a_hook_changes_are_those_that_layers_which_route_together_see():
    layers, u = stack(), children()
    expected = route_concurrently(layers, half(u), iterations=3)["classes"].parents.pose
    layers["windows"].register_forward_pre_hook(lambda _, given: (half(given[0]),))
    found = route_concurrently(layers, u, iterations=3)["classes"].parents.pose
    assert torch.equal(found, expected)


def test_parents_that_a_hook_changes_are_those_that_a_layer_goes_on_from():
    layer, u = stack()["windows"], children()
    first = half(layer.step(u, None).parents)
    expected = half(layer.step(u, first).parents)
    layer.register_forward_hook(lambda _, u, routed: routed._replace(parents=half(routed.parents)))
    found = route_concurrently({"windows": layer}, u, iterations=2)["windows"]
    assert torch.equal(found.parents.pose, expected.pose)


def test_a_hook_that_fails_leaves_the_layer_as_it_was():
    layers, u = stack(), children()
    expected = route_concurrently(layers, u, iterations=2)["classes"].parents.pose
    handle = layers["hidden"].register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        route_concurrently(layers, u, iterations=2)
    handle.remove()
    found = route_concurrently(layers, u, iterations=2)["classes"].parents.pose
    assert torch.equal(found, expected)
    assert "forward" not in vars(layers["hidden"])


@pytest.mark.parametrize("route", [route_sequentially, partial(route_concurrently, iterations=3)])
@pytest.mark.parametrize("backend", ["auto", "fused"])
def test_hooks_of_a_routing_fire_wherever_it_routes(route, backend):
    """A fused form, or a step among others, passed them over."""
    layers, u = stack(), children()
    for layer in layers.values():
        use_backend(layer, backend)
    expected = route(layers, u)["classes"].parents.pose
    seen = []
    layers["hidden"].routing.register_forward_hook(
        lambda routing, given, routed: seen.append((given[0], routed.parents.pose))
    )
    found = route(layers, u)
    torch.testing.assert_close(found["classes"].parents.pose, expected, rtol=0, atol=1e-12)
    assert len(seen) == (1 if route is route_sequentially else 2)
    votes, parents = seen[-1]
    assert votes.shape == (2, 18, 5, 3)
    assert torch.equal(parents, found["hidden"].parents.pose)


def test_a_parameter_of_a_routing_that_a_hook_makes_is_made_where_votes_are_not_stored():
    """Its mask was put on once, and not after the next step of an optimiser."""
    layer = DenseCapsules(
        n_in=6, d_in=4, n_out=3, d_out=4, routing=DynamicRouting(prior="learned")
    ).double()
    use_backend(layer, "fused")
    u = Capsules(torch.randn(2, 6, 4, dtype=torch.float64))
    prune.random_unstructured(layer.routing, "prior", 0.5)
    layer.routing.prior_orig.data.normal_()
    expected = layer.routing.prior_orig * layer.routing.prior_mask
    found = layer(u).parents.pose
    assert torch.equal(layer.routing.prior, expected)
    prune.remove(layer.routing, "prior")
    torch.testing.assert_close(found, layer(u).parents.pose, rtol=0, atol=1e-12)
