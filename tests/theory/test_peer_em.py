"""[peer2022] Lemmas 5–11, Theorem 2 and §4.2: EM routing cannot tell poses from their negatives.

Where the activations are equal, a_j and R are equal and μ is negated, bit for bit, since rounding
is symmetric. §4.2 adds a bias to every vote. That shifts all votes of a parent by one constant, and
a_j and R do not see a shift: contrary to §4.2 the bias acts from the next layer on. Only the damped
mean of the official code, which starts at zero, sees it at once.
"""

import itertools

import pytest
import torch

from torchcaps.ops import em_routing, materialise
from torchcaps.types import Capsules, VoteMap

VARIANTS = ["paper", "official", "gritzman"]
# The released code that "official" is multiplies beta_a by 5000.
BETA_A = {"paper": 1.0, "official": 1e-3, "gritzman": 1.0}
# At 0.01 the activations of "paper" are all near one half; "gritzman" multiplies by 100 J / I.
LAMBDA = {"paper": 1.0, "official": 1.0, "gritzman": 0.02}
DTYPES = [torch.float32, torch.float64]
# Children of the first layer, then the parents of each layer, with their pose sizes.
LAYERS = {
    "vector": [(9, 4), (7, 5), (6, 3), (4, 6)],
    "matrix": [(9, 4), (7, 4), (6, 4), (4, 4)],
}


def weights(pose, dtype):
    """One a layer, large enough for couplings far from uniform."""
    layers = itertools.pairwise(LAYERS[pose])
    sizes = {"vector": lambda d_out, d_in: (d_out, d_in), "matrix": lambda *_: (2, 2)}[pose]
    return [
        torch.randn(n_in, n_out, *sizes(d_out, d_in)).to(dtype)
        for (n_in, d_in), (n_out, d_out) in layers
    ]


def first_children(pose, dtype):
    return Capsules(torch.randn(3, *LAYERS[pose][0]).to(dtype), torch.rand(3, 9).to(dtype))


def negated(children):
    return children._replace(pose=-children.pose)


def votes_of(children, weight, pose="vector", bias=None):
    return materialise(VoteMap(children, weight, pose=pose, bias=bias))


def route(children, weight, *, variant, pose="vector", bias=None, **options):
    votes = votes_of(children, weight, pose, bias)
    betas = {"beta_a": BETA_A[variant], "beta_u": 0.5}
    betas = {name: votes.new_tensor(beta) for name, beta in betas.items()} | options
    return em_routing(
        votes,
        children.activation,
        variant=variant,
        lambda_=LAMBDA[variant],
        keep="steps",
        **betas,
    )


def variances(votes, activation, step):
    r = (step.coupling * activation.unsqueeze(-1)).unsqueeze(-1)
    return (r * (votes - step.parents.pose.unsqueeze(-3)) ** 2).sum(-3) / r.sum(-3)


def is_negated(minus, plus):
    return torch.equal(minus, -plus) and plus.abs().max() > 0


def assert_blind(plus, minus):
    """Equal activations and couplings and negated poses, in every iteration."""
    for a, b in zip(plus.steps, minus.steps, strict=True):
        assert torch.equal(a.coupling, b.coupling)  # Lemma 10
        assert torch.equal(a.parents.activation, b.parents.activation)  # Lemma 9
        assert is_negated(b.parents.pose, a.parents.pose)  # Lemma 6
    assert plus.parents.activation.std() > 1e-4
    assert is_negated(minus.parents.pose, plus.parents.pose)  # Lemma 11


CASES = [
    pytest.param(
        dtype, pose, variant, iterations, id=f"{str(dtype)[6:]}-{pose}-{variant}-{iterations}"
    )
    for dtype in DTYPES
    for pose in LAYERS
    for variant in VARIANTS
    for iterations in (1, 2, 3, 5)
]


@pytest.mark.parametrize("pose", LAYERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lemma_5_votes_are_negated(dtype, pose):
    children, weight = first_children(pose, dtype), weights(pose, dtype)[0]
    votes = [votes_of(c, weight, pose) for c in (children, negated(children))]
    assert is_negated(*votes)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lemmas_7_and_8_variances_are_equal(dtype, variant):
    children, weight = first_children("vector", dtype), weights("vector", dtype)[0]
    plus, minus = (
        [
            variances(votes_of(c, weight), c.activation, step)
            for step in route(c, weight, variant=variant).steps
        ]
        for c in (children, negated(children))
    )
    for a, b in zip(plus, minus, strict=True):
        assert torch.equal(a, b)
        assert a.min() > 0


@pytest.mark.parametrize(("dtype", "pose", "variant", "iterations"), CASES)
def test_lemmas_6_to_11_and_theorem_2(dtype, pose, variant, iterations):
    plus = first_children(pose, dtype)
    minus = negated(plus)
    for weight in weights(pose, dtype):
        options = {"variant": variant, "pose": pose, "iterations": iterations}
        routed = [route(children, weight, **options) for children in (plus, minus)]
        assert_blind(*routed)
        plus, minus = (r.parents for r in routed)
    # Theorem 2: the activations that classify are equal.
    assert torch.equal(plus.activation, minus.activation)


def test_the_stack_of_theorem_2_routes():
    # Without couplings far from uniform the lemmas would say nothing about routing.
    for variant, pose in itertools.product(VARIANTS, LAYERS):
        children = first_children(pose, torch.float64)
        for weight in weights(pose, torch.float64):
            routed = route(children, weight, variant=variant, pose=pose)
            assert (routed.steps[-1].coupling - 1 / weight.shape[1]).abs().max() > 0.1
            children = routed.parents


@pytest.mark.parametrize("variant", VARIANTS)
def test_beta_a_and_beta_u_do_not_break_the_symmetry(variant):
    children, weight = first_children("vector", torch.float64), weights("vector", torch.float64)[0]
    seen = []
    for _ in range(5):
        betas = {
            "beta_a": 3 * torch.randn(7).double() * BETA_A[variant],
            "beta_u": 3 * torch.randn(7).double(),
        }
        routed = [route(c, weight, variant=variant, **betas) for c in (children, negated(children))]
        assert_blind(*routed)
        seen.append(routed[0].parents.activation)
    assert all((a - b).abs().max() > 0.1 for a, b in itertools.pairwise(seen))


def of_both_signs(variant, layers):
    """The last layer for an input and its negative; the first one has a bias on its votes, about as
    large as they are."""
    bias = torch.linspace(-3, 3, 35, dtype=torch.float64).view(7, 5)
    plus = first_children("vector", torch.float64)
    minus = negated(plus)
    for depth, weight in enumerate(weights("vector", torch.float64)[:layers]):
        options = {"variant": variant, "bias": bias if depth == 0 else None}
        routed = [route(children, weight, **options) for children in (plus, minus)]
        plus, minus = (r.parents for r in routed)
    return routed


@pytest.mark.parametrize("variant", ["paper", "gritzman"])
def test_section_4_2_one_layer_does_not_see_a_bias_on_the_votes(variant):
    plus, minus = of_both_signs(variant, layers=1)
    for a, b in zip(plus.steps, minus.steps, strict=True):
        assert (a.coupling - b.coupling).abs().max() <= 1e-12
        assert (a.parents.activation - b.parents.activation).abs().max() <= 1e-12
    # The poses are no longer negatives of each other: that is what the next layer sees.
    assert (plus.parents.pose + minus.parents.pose).abs().max() > 1


@pytest.mark.parametrize(
    ("variant", "layers"), [("paper", 2), ("gritzman", 2), ("official", 1), ("official", 2)]
)
def test_section_4_2_a_bias_on_the_votes_breaks_the_symmetry(variant, layers):
    plus, minus = (routed.parents.activation for routed in of_both_signs(variant, layers))
    assert (plus - minus).abs().max() > 1e-3


@pytest.mark.parametrize("variant", ["paper", "gritzman"])
def test_one_child_without_a_floor_is_not_a_number(variant):
    child = Capsules(torch.randn(1, 4).double(), torch.ones(1).double())
    weight = torch.randn(1, 3, 5, 4).double()
    routed = route(child, weight, variant=variant, iterations=2, variance_floor=0.0)
    assert routed.parents.pose.isnan().all()
    assert routed.parents.activation.isnan().all()


@pytest.mark.parametrize("bias", [None, torch.full((3, 5), 2.0).double()], ids=["plain", "bias"])
@pytest.mark.parametrize("variant", ["paper", "gritzman"])
def test_with_a_floor_the_activation_does_not_depend_on_the_pose_of_one_child(variant, bias):
    # The first layer of the sign net of §5.2: only the next one can learn a sign.
    weight, activation = torch.randn(1, 3, 5, 4).double(), torch.ones(1).double()
    first, second = (
        route(Capsules(torch.randn(1, 4).double(), activation), weight, variant=variant, bias=bias)
        for _ in range(2)
    )
    assert (first.parents.activation - second.parents.activation).abs().max() <= 1e-12
    assert (first.parents.pose - second.parents.pose).abs().max() > 0.1


@pytest.mark.parametrize("floor", [0.0, 0.01])
def test_one_child_is_another_matter_with_the_official_variant(floor):
    """Its damped mean stays behind the only vote: what is left is a variance, so there is no NaN
    without a floor, and the activation depends on the pose."""
    weight, activation = torch.randn(1, 3, 5, 4).double(), torch.ones(1).double()
    options = {"variant": "official", "iterations": 2, "variance_floor": floor}
    first, second = (
        route(Capsules(torch.randn(1, 4).double(), activation), weight, **options).parents
        for _ in range(2)
    )
    assert first.pose.isfinite().all()
    assert first.activation.isfinite().all()
    assert (first.activation - second.activation).abs().max() > 1e-3
