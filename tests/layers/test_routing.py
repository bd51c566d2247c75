"""Routings as modules: which parameters they own, what these start at, and which op they call."""

import math
import re

import pytest
import torch

from told import text_of
from torchcaps.errors import TorchcapsError
from torchcaps.layers import (
    ROUTINGS,
    ConvCapsules,
    DenseCapsules,
    DistanceRouting,
    DynamicRouting,
    EMRouting,
    InvertedRouting,
    SelfAttentionRouting,
    UniformRouting,
)
from torchcaps.layers.routing import _unit, as_routing, make_routing
from torchcaps.ops import (
    distance_routing,
    dynamic_routing,
    em_routing,
    inverted_routing,
    self_attention_routing,
    uniform_routing,
)
from torchcaps.types import Capsules

N_IN, N_OUT, D = SIZE = (5, 4, 2)


def bound(routing):
    routing.bind(n_in=N_IN, n_out=N_OUT, d_out=D)
    return routing


@pytest.mark.parametrize(
    ("routing", "parameters"),
    [
        (DynamicRouting(), {}),
        (DynamicRouting(prior="learned"), {"prior": (5, 4)}),
        (DynamicRouting(bias=True), {"bias": (4, 2)}),
        (DynamicRouting(prior="learned", bias=True), {"prior": (5, 4), "bias": (4, 2)}),
        (UniformRouting(), {}),
        (UniformRouting(bias=True), {"bias": (4, 2)}),
    ],
    ids=["dynamic", "prior", "bias", "prior-bias", "uniform", "uniform-bias"],
)
def test_parameters_exist_exactly_when_asked(routing, parameters):
    found = dict(bound(routing).named_parameters())
    assert {name: tuple(p.shape) for name, p in found.items()} == parameters
    starts = {"prior": 0.0, "bias": 0.1}
    for name, parameter in found.items():
        assert torch.equal(parameter, torch.full_like(parameter, starts[name]))


def test_dynamic_hands_every_option_to_its_op():
    votes = torch.randn(3, *SIZE)
    given = {"iterations": 2, "leaky": True, "squash": "exp", "detach": "votes"}
    mine = bound(DynamicRouting(**given))(votes, None, keep="steps")
    op = dynamic_routing(votes, **given, keep="steps")
    for a, b in zip(mine.steps, op.steps, strict=True):
        assert torch.equal(a.coupling, b.coupling)
    assert torch.equal(mine.parents.pose, op.parents.pose)
    for changed in ({"iterations": 3}, {"leaky": False}, {"squash": "hinton"}):
        other = dynamic_routing(votes, **given | changed)
        assert not torch.equal(mine.parents.pose, other.parents.pose)


@pytest.mark.parametrize(
    ("normalise", "axis", "over"), [("softmax", -1, "parents"), ("mean", -2, "children")]
)
def test_uniform_couplings_sum_to_one_over_what_it_declares(normalise, axis, over):
    votes = torch.randn(3, *SIZE)
    routing = bound(UniformRouting(normalise=normalise, squash="exp"))
    routed = routing(votes, None, keep="last")
    total = routed.steps[0].coupling.sum(axis)
    torch.testing.assert_close(total, torch.ones_like(total))
    assert routing.normalised_over == over
    expected = uniform_routing(votes, normalise=normalise, squash="exp").parents.pose
    assert torch.equal(routed.parents.pose, expected)


def test_a_prior_changes_nothing_before_training():
    votes = torch.randn(3, *SIZE)
    learned = bound(DynamicRouting(prior="learned"))(votes, None)
    zero = bound(DynamicRouting(prior="zero"))(votes, None)
    torch.testing.assert_close(learned.parents.pose, zero.parents.pose)


@pytest.mark.parametrize("make", [DynamicRouting, UniformRouting])
def test_without_a_bias_minus_x_gives_minus_y(make):
    votes = torch.randn(3, *SIZE)
    blind, seeing = bound(make()), bound(make(bias=True))
    assert torch.equal(blind(-votes, None).parents.pose, -blind(votes, None).parents.pose)
    assert torch.equal(
        blind(-votes, None).parents.activation, blind(votes, None).parents.activation
    )
    gap = seeing(-votes, None).parents.activation - seeing(votes, None).parents.activation
    assert gap.abs().max() > 0.01


def test_names_and_classes():
    for name, kind in ROUTINGS.items():
        assert kind.__name__.lower() == f"{name}routing".replace("_", "")
    assert isinstance(as_routing("uniform"), UniformRouting)
    mine = DynamicRouting(iterations=7)
    assert as_routing(mine) is mine


@pytest.mark.parametrize(("name", "hint"), [("dinamic", "did you mean 'dynamic'? "), ("zzz", "")])
def test_unknown_name(name, hint):
    expected = f"routing={name!r} is unknown; {hint}known: {', '.join(sorted(ROUTINGS))}."
    with pytest.raises(TorchcapsError, match=f"^{re.escape(expected)}$"):
        as_routing(name)


def test_a_routing_belongs_to_one_layer() -> None:
    routing = DynamicRouting(prior="learned")
    DenseCapsules(n_in=3, d_in=2, n_out=2, d_out=2, routing=routing)
    with pytest.raises(TorchcapsError, match=r"^this DynamicRouting belongs to a layer already; "):
        DenseCapsules(n_in=5, d_in=2, n_out=2, d_out=2, routing=routing)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: DynamicRouting(prior="learnt"),
            "prior='learnt' is unknown; did you mean 'learned'?",
        ),
        (
            lambda: DynamicRouting(squash="hintn"),
            "squash='hintn' is unknown; did you mean 'hinton'?",
        ),
        (lambda: DynamicRouting(detach="vote"), "detach='vote' is unknown; did you mean 'votes'?"),
        (lambda: DynamicRouting(iterations=0), "iterations counts the uniform first pass"),
        (lambda: EMRouting(lambda_=-0.5), "lambda_ must be a finite number from 0 up"),
        (lambda: EMRouting(variance_floor=math.inf), "variance_floor must be a finite number"),
        (lambda: InvertedRouting(lambda_=math.nan), "lambda_ must be a finite number from 0 up"),
        (
            lambda: UniformRouting(normalise="men"),
            "normalise='men' is unknown; did you mean 'mean'?",
        ),
    ],
)
def test_a_wrong_option_is_refused_when_it_is_given(make, text) -> None:
    with pytest.raises(TorchcapsError, match=f"^{re.escape(text)}"):
        make()


def random_parameters(routing):
    """As after training."""
    with torch.no_grad():
        for parameter in routing.parameters():
            parameter.copy_(torch.randn_like(parameter) / 3)
    return routing


def assert_equal(mine, op):
    assert torch.equal(mine.parents.pose, op.parents.pose)
    assert (mine.parents.activation is None) == (op.parents.activation is None)
    if op.parents.activation is not None:
        assert torch.equal(mine.parents.activation, op.parents.activation)
    assert len(mine.steps) == len(op.steps) > 0
    for a, b in zip(mine.steps, op.steps, strict=True):
        assert torch.equal(a.coupling, b.coupling)


VOTES = (3, *SIZE)


@pytest.mark.parametrize("variant", ["paper", "official", "gritzman"])
def test_em_hands_every_option_and_both_costs_to_its_op(variant):
    votes, activation = torch.randn(VOTES), torch.rand(3, N_IN)
    given = {"iterations": 2, "variant": variant, "lambda_": 0.3, "variance_floor": 0.01}
    routing = random_parameters(bound(EMRouting(**given)))
    betas = {"beta_a": routing.beta_a, "beta_u": routing.beta_u}
    op = em_routing(votes, activation, **betas, **given, keep="steps")
    assert_equal(routing(votes, activation, keep="steps"), op)
    for changed in ({"iterations": 3}, {"lambda_": 0.6}, {"variance_floor": 1.0}):
        other = em_routing(votes, activation, **betas, **given | changed)
        assert not torch.equal(other.parents.activation, op.parents.activation)


def test_em_tells_its_op_which_child_is_in_which_slot():
    routing = EMRouting(compete="all", lambda_=0.3)
    layer = ConvCapsules(child_grid=(3, 3, 1), d_in=2, types=2, d_out=2, kernel=2, routing=routing)
    votes, activation = torch.randn(3, 4, 4, 2, 2), torch.rand(3, 4, 4)
    # Windows of 2×2 on nine positions, one row of slots a window.
    child_id = torch.tensor([[0, 1, 3, 4], [1, 2, 4, 5], [3, 4, 6, 7], [4, 5, 7, 8]])
    op = em_routing(
        votes,
        activation,
        beta_a=routing.beta_a,
        beta_u=routing.beta_u,
        compete="all",
        child_id=child_id,
        lambda_=0.3,
        keep="steps",
    )
    assert_equal(routing(votes, activation, keep="steps"), op)
    assert layer.routing.normalised_over == "parents_and_positions"
    assert bound(EMRouting()).normalised_over == "parents"


def test_costs_start_as_the_code_of_each_variant_has_them():
    def start(window=None, **options):
        torch.manual_seed(2)
        routing = EMRouting(**options)
        routing.bind(n_in=9, n_out=4000, d_out=2, window=window)
        return routing.beta_a.detach(), routing.beta_u.detach()

    for beta in start():
        assert float(beta.mean()) == pytest.approx(0, abs=0.01)
        assert float(beta.std()) == pytest.approx(0.1, rel=0.05)
    a, u = start(variant="official")
    assert (set(a.tolist()), set(u.tolist())) == ({1.0}, {2.0})
    windows = ConvCapsules(
        child_grid=(3, 3, 1), d_in=2, types=2, d_out=2, routing=EMRouting(variant="official")
    )
    assert windows.routing.beta_a.tolist() == windows.routing.beta_u.tolist() == [0.5, 0.5]
    a, u = start(variant="gritzman")
    assert -2000 <= a.min() <= a.max() <= 0
    assert float(a.mean()) == pytest.approx(-1000, abs=50)
    bound_u = math.sqrt(6 / 4002)
    assert 0.95 * bound_u < u.abs().max() <= bound_u


def test_competition_of_windows_needs_windows():
    assert text_of(lambda: bound(EMRouting(compete="all"))) == (
        'compete="all" is for convolutional capsules, where several windows see a child; '
        'a dense layer has one window: use compete="window".'
    )


@pytest.mark.parametrize("start", ["none", "learned"])
@pytest.mark.parametrize("layer_norm", [True, False])
@pytest.mark.parametrize("activations", [True, False])
def test_inverted_hands_every_option_to_its_op(start, layer_norm, activations):
    votes, activation = torch.randn(VOTES), torch.rand(3, N_IN)
    given = {"start": start, "layer_norm": layer_norm, "activations": activations}
    routing = bound(InvertedRouting(**given, iterations=3, scaled=True, lambda_=0.3))
    random_parameters(routing)
    norm = (routing.norm.weight, routing.norm.bias) if layer_norm else None
    costs = {"activation": activation, "beta_a": routing.beta_a, "beta_u": routing.beta_u}
    op = inverted_routing(
        votes,
        iterations=3,
        norm=norm,
        scale=1 / math.sqrt(D),
        start=routing.start,
        lambda_=0.3,
        keep="steps",
        **(costs if activations else {}),
    )
    assert_equal(routing(votes, activation, keep="steps"), op)
    assert routing.gives_activations == activations
    # And step by step.
    parents = None
    for step in op.steps:
        mine = routing.step(votes, activation, parents)
        assert torch.equal(mine.coupling, step.coupling)
        parents = mine.parents
    assert torch.equal(parents.pose, op.parents.pose)


def test_parameters_of_inverted_routing_at_the_start():
    full = bound(InvertedRouting(activations=True, start="learned"))
    found = {name: tuple(p.shape) for name, p in full.named_parameters()}
    assert found == {
        "norm.weight": (2,),
        "norm.bias": (2,),
        "start": (4, 2),
        "beta_a": (4,),
        "beta_u": (4,),
    }
    assert not full.beta_a.any()
    assert not full.beta_u.any()
    assert full.norm.eps == 1e-5
    assert dict(bound(InvertedRouting(layer_norm=False)).named_parameters()) == {}
    wide = InvertedRouting(start="learned")
    wide.bind(n_in=2, n_out=100, d_out=64)
    assert float(wide.start.detach().std()) == pytest.approx(1 / 8, rel=0.05)
    assert InvertedRouting().gives_activations is False
    assert full.normalised_over == "parents"


@pytest.mark.parametrize("squash", ["exp", "hinton"])
@pytest.mark.parametrize(("prior", "over"), [("learned", "none"), ("zero", "parents")])
def test_self_attention_hands_its_prior_to_its_op(prior, over, squash):
    votes = torch.randn(VOTES)
    routing = bound(SelfAttentionRouting(prior=prior, squash=squash))
    assert (routing.prior is None) == (prior == "zero")
    if prior == "learned":
        assert torch.equal(routing.prior, torch.zeros(5, 4))
    random_parameters(routing)
    op = self_attention_routing(votes, bias=routing.prior, squash=squash, keep="steps")
    assert_equal(routing(votes, None, keep="steps"), op)
    assert routing.normalised_over == over


@pytest.mark.parametrize("bias", [True, False])
def test_distance_hands_every_option_to_its_op(bias):
    votes, activation = torch.randn(VOTES), torch.rand(3, N_IN)
    given = {"iterations": 2, "squash": "exp", "detach": "votes"}
    routing = bound(DistanceRouting(**given, bias=bias))
    if bias:
        assert torch.equal(routing.bias, torch.full((4, 2), 0.1))
    random_parameters(routing)
    op = distance_routing(votes, activation, **given, bias=routing.bias, keep="steps")
    assert_equal(routing(votes, activation, keep="steps"), op)
    for changed in ({"iterations": 3}, {"squash": "hinton"}, {"scale": "batch"}):
        other = distance_routing(votes, activation, **given | changed, bias=routing.bias)
        assert not torch.equal(other.parents.pose, op.parents.pose)


def test_the_scale_of_a_batch_is_learned_and_used_in_evaluation():
    votes, activation = torch.randn(VOTES), torch.rand(3, N_IN)
    routing = bound(DistanceRouting(iterations=3, scale="batch"))
    assert torch.equal(routing.running_scale, torch.ones(2))
    trained = routing.train()(votes, activation, keep="steps")
    assert_equal(trained, distance_routing(votes, activation, scale="batch", keep="steps"))
    # A tenth of what came, nine of what was there.
    expected = 0.9 + 0.1 * trained.scale
    torch.testing.assert_close(routing.running_scale, expected)
    stored = routing.running_scale.clone()
    evaluated = routing.eval()(votes, activation, keep="steps")
    assert_equal(evaluated, distance_routing(votes, activation, scale=stored, keep="steps"))
    assert torch.equal(routing.running_scale, stored)
    assert "running_scale" not in dict(bound(DistanceRouting()).named_buffers())


def test_distance_needs_lengths():
    assert text_of(lambda: bound(DistanceRouting())(torch.randn(VOTES), None)) == (
        "distance routing keeps votes as short as their children, but the children came without "
        "lengths; give them, for example Capsules(pose, pose.norm(dim=-1))."
    )


def test_options_that_a_routing_does_not_know_are_left_out():
    made = make_routing("uniform", iterations=5, normalise="mean", leaky=True)
    assert isinstance(made, UniformRouting)
    assert made.normalise == "mean"
    assert make_routing("inverted", iterations=5, squash="exp").iterations == 5


def test_options_that_no_routing_knows_are_refused():
    assert text_of(lambda: make_routing("uniform", iteration=9)).startswith(
        "no routing has an option 'iteration'; did you mean 'iterations'?"
    )


def test_unit_poses_are_as_long_as_their_activations():
    """By hand: the mean (3, 4) of activation 0.5 becomes (0.3, 0.4); a mean of zero stays zero, and
    its gradient finite."""
    mean = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    activation = torch.tensor([0.5, 0.9], dtype=torch.float64, requires_grad=True)
    found = _unit(Capsules(mean, activation))
    expected = torch.tensor([[0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(found.pose, expected, rtol=0, atol=1e-9)
    assert torch.equal(found.activation, activation)
    of_mean, of_activation = torch.autograd.grad(found.pose[:, 0].sum(), [mean, activation])
    # a (1 − x²/n²) / n and −a x y / n³ with n = 5; and x / n.
    expected = torch.tensor([0.5 * 0.64 / 5, -0.5 * 12 / 125], dtype=torch.float64)
    torch.testing.assert_close(of_mean[0], expected, rtol=0, atol=1e-9)
    assert of_mean.isfinite().all()
    assert float(of_activation[0]) == pytest.approx(0.6)


def test_unit_poses_are_those_of_the_routing():
    votes, activation = torch.randn(N_IN, N_OUT, D).double(), torch.rand(N_IN).double()
    bare, unit = (bound(EMRouting(unit_poses=asked)).double() for asked in (False, True))
    unit.load_state_dict(bare.state_dict())
    with torch.no_grad():
        mean, a = bare(votes, activation, keep="steps").parents
        routed = unit(votes, activation, keep="steps")
    for parent in range(N_OUT):
        length = math.sqrt(sum(float(x) ** 2 for x in mean[parent]))
        for d in range(D):
            by_hand = float(a[parent]) * float(mean[parent, d]) / length
            assert float(routed.parents.pose[parent, d]) == pytest.approx(by_hand, abs=1e-7)
    assert torch.equal(routed.steps[-1].parents.pose, routed.parents.pose)
