"""[peer2022] Lemmas 1–4 and Theorem 1: dynamic routing cannot tell an input from its negative.

v(−u) = −v(u) and equal couplings in every iteration hold bit for bit, since rounding is symmetric.
§4.1: a bias before the squash breaks the equality of norms, already in one layer.
"""

import itertools

import pytest
import torch

from torchcaps.ops import dynamic_routing, materialise, uniform_routing
from torchcaps.types import Capsules, VoteMap

SQUASHES = ["hinton", "exp"]
DTYPES = [torch.float32, torch.float64]
DRAWS = 20


def stack(depth, dtype, std=2):
    """Children of three images, and one weight [i, j, d_out, d_in] a layer, of sizes that are
    drawn. By default they are large enough for couplings far from uniform, however deep."""
    counts, sizes = (torch.randint(3, 10, (depth + 1,)) for _ in range(2))
    weights = [
        std * torch.randn(n_in, n_out, d_out, d_in).to(dtype)
        for (n_in, d_in), (n_out, d_out) in itertools.pairwise(zip(counts, sizes, strict=True))
    ]
    return torch.randn(3, counts[0], sizes[0]).to(dtype), weights


def votes_of(children, weight):
    return materialise(VoteMap(Capsules(children), weight))


def is_negated(minus, plus):
    return torch.equal(minus, -plus) and plus.abs().max() > 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lemma_1_votes_are_negated(dtype):
    for _ in range(DRAWS):
        u, (weight,) = stack(1, dtype)
        assert is_negated(votes_of(-u, weight), votes_of(u, weight))


@pytest.mark.parametrize("iterations", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lemma_2_equal_couplings_negate_the_parents(dtype, iterations):
    for _ in range(DRAWS):
        u, (weight,) = stack(1, dtype)
        votes = [votes_of(x, weight) for x in (u, -u)]
        fixed = torch.randn(votes[0].shape[:-1]).to(dtype).softmax(-1)
        prior = torch.randn(weight.shape[:2]).to(dtype)
        # Without a squash the pose is the sum s_j itself.
        for kind, b in itertools.product(("none", *SQUASHES), (None, prior)):
            options = {"iterations": iterations, "squash": kind, "prior": b, "keep": "last"}
            options["couple"] = lambda c, fixed=fixed: fixed
            plus, minus = (dynamic_routing(x, **options) for x in votes)
            for routed in (plus, minus):
                assert torch.equal(routed.steps[0].coupling, fixed)
            assert is_negated(minus.parents.pose, plus.parents.pose)
            assert torch.equal(minus.parents.activation, plus.parents.activation)


@pytest.mark.parametrize("kind", SQUASHES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lemma_2_of_even_couplings(dtype, kind):
    votes = torch.randn(3, 9, 7, 5).to(dtype)
    for normalise in ("softmax", "mean"):
        plus, minus = (
            uniform_routing(x, normalise=normalise, squash=kind).parents for x in (votes, -votes)
        )
        assert is_negated(minus.pose, plus.pose)
        assert torch.equal(minus.activation, plus.activation)


CASES = [
    pytest.param(
        dtype, kind, learned, iterations, id=f"{str(dtype)[6:]}-{kind}-{name}-{iterations}"
    )
    for dtype in DTYPES
    for kind in SQUASHES
    for learned, name in ((False, "zero"), (True, "learned"))
    for iterations in (1, 2, 3, 4, 5)
]


@pytest.mark.parametrize(("dtype", "kind", "learned", "iterations"), CASES)
def test_lemmas_3_and_4_and_theorem_1(dtype, kind, learned, iterations):
    # Of any number of iterations twenty layers, and with all of them 25 stacks.
    for depth in (2, 3, 4, 5, 6):
        plus, weights = stack(depth, dtype)
        minus = -plus
        for weight in weights:
            prior = torch.randn(weight.shape[:2]).to(dtype) if learned else None
            options = {"iterations": iterations, "prior": prior, "squash": kind, "keep": "steps"}
            routed = [dynamic_routing(votes_of(u, weight), **options) for u in (plus, minus)]
            for a, b in zip(routed[0].steps, routed[1].steps, strict=True):
                assert torch.equal(a.coupling, b.coupling)  # Lemma 3
                assert is_negated(b.parents.pose, a.parents.pose)  # Lemma 2
            plus, minus = (r.parents.pose for r in routed)
            assert is_negated(minus, plus)  # Lemma 4
        # Theorem 1: the norms that classify are equal.
        assert torch.equal(routed[0].parents.activation, routed[1].parents.activation)


@pytest.mark.parametrize("kind", SQUASHES)
def test_the_stack_of_theorem_1_routes(kind):
    # Without couplings far from uniform the lemmas would say nothing about routing.
    for _ in range(DRAWS):
        u, weights = stack(6, torch.float64)
        for weight in weights:
            routed = dynamic_routing(votes_of(u, weight), squash=kind, keep="last")
            uniform = 1 / weight.shape[1]
            assert (routed.steps[0].coupling - uniform).abs().max() > 0.1
            u = routed.parents.pose


@pytest.mark.parametrize("iterations", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("kind", SQUASHES)
def test_a_bias_breaks_the_symmetry_in_one_layer(kind, iterations):
    # Weights as layers begin with them. Large ones make every length nearly 1, with a bias or none.
    for _ in range(DRAWS):
        u, (weight,) = stack(1, torch.float64, std=0.1)
        bias = 0.1 * torch.randn(weight.shape[1:3]).double()
        options = {"bias": bias, "squash": kind, "iterations": iterations}
        plus, minus = (
            dynamic_routing(votes_of(x, weight), **options).parents.activation for x in (u, -u)
        )
        # In each of the three images.
        assert (plus - minus).abs().amax(-1).min() > 1e-3


@pytest.mark.parametrize("kind", SQUASHES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_odd_bias_keeps_the_symmetry(dtype, kind):
    # The control of section 4.1: a bias that turns with its input changes the parents, not the law.
    plus, weights = stack(3, dtype)
    minus = -plus
    for weight in weights:
        bias = torch.randn(weight.shape[1], weight.shape[2]).to(dtype)
        options = {"bias": bias, "squash": kind, "keep": "steps"}
        votes = votes_of(plus, weight)
        without = dynamic_routing(votes, squash=kind).parents.pose
        a = dynamic_routing(votes, odd_bias=True, **options)
        b = dynamic_routing(votes_of(minus, weight), odd_bias=True, **options)
        assert all(torch.equal(x.coupling, y.coupling) for x, y in zip(a[1], b[1], strict=True))
        plus, minus = a.parents.pose, b.parents.pose
        assert is_negated(minus, plus)
        assert (plus - without).abs().max() > 1e-3
