"""EM routing: examples on paper, its laws, and windows that compete."""

import itertools

import pytest
import torch

from torchcaps.ops import em_routing
from torchcaps.types import Window

VARIANTS = ["paper", "official", "gritzman"]
# The released code that "official" is multiplies beta_a by 5000.
BETA_A = {"paper": 1.0, "official": 1e-3, "gritzman": 1.0}
FLOOR = {"paper": 1e-4, "official": 5e-4, "gritzman": 1e-9}
OVERLAPPING = Window((4, 5, 2), (3, 2), (1, 2))
DISJOINT = Window((5, 5, 2), (2, 2), (2, 2))  # the last row and column are in no window


def random_votes(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def random_arguments(*shape, variant="paper"):
    """Votes of this shape and everything that goes with them."""
    n_out = shape[-2]
    return {
        "votes": random_votes(*shape),
        "activation": torch.rand(*shape[:-2], dtype=torch.float64),
        "beta_a": random_votes(n_out) * BETA_A[variant],
        "beta_u": random_votes(n_out),
    }


def route(arguments, **options):
    """The op, with votes and activation where they stand."""
    arguments = dict(arguments)
    return em_routing(arguments.pop("votes"), arguments.pop("activation"), **arguments, **options)


def parts(routed):
    """Every number of a routing: poses, activations, couplings."""
    return [*routed.parents, *(step.coupling for step in routed.steps)]


def assert_near(ours, theirs, error=1e-12):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=error)


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


# Two children with activations 1 and 1/4. Both say 5 to parent 0; to parent 1 they say 0 and 10.
ON_PAPER = {
    "votes": tensor([[[5.0], [0.0]], [[5.0], [10.0]]]),
    "activation": tensor([1.0, 0.25]),
}


def test_two_iterations_on_paper():
    # λ_1 = 32 · 0.05 = 1.6, λ_2 = 32 · 0.0975 = 3.12
    # t = 1: r_i = (1/2, 1/8), m = 5/8, weights 0.8 and 0.2
    #   μ = (5, 0.2 · 10 = 2), σ² = (0 + 9, 0.8 · 4 + 0.2 · 64 + 9 = 25), σ = (3, 5)
    #   logit = 1.6 β_a − (β_u + ln σ) = −ln σ, a = 1/(1 + σ) = (1/4, 1/6)
    #   q_i0 = 1/4 · 1/3, q_i1 = 1/6 · 1/5 · exp(−d²/50) with d² = 4 and 64
    #   R_i0 = 1/(1 + 0.4 exp(−d²/50)) = 0.7303287 and 0.8999159
    # t = 2: m = (0.7303287 + 0.2249790, 0.2696713 + 0.0250210) = (0.9553076, 0.2946924)
    #   the second child weighs w = 0.0849056 for parent 1
    #   μ = (5, 10 w = 0.8490556), σ² = (9, 100 w (1 − w) + 9 = 16.7696606)
    #   logit_0 = 3.12 (0.5 − (0.8 + 1.0986123) 0.9553076) = −4.0989276
    #   logit_1 = 3.12 (1.0 − (1.6 + 1.4097857) 0.2946924) = 0.3526822
    routed = em_routing(
        **ON_PAPER,
        beta_a=tensor([0.5, 1.0]),
        beta_u=tensor([0.8, 1.6]),
        iterations=2,
        lambda_=32.0,
        variance_floor=9.0,
        keep="steps",
    )
    first, second = routed.steps
    assert first.coupling.flatten().tolist() == [0.5] * 4
    assert first.parents.pose.flatten().tolist() == pytest.approx([5.0, 2.0])
    assert first.parents.activation.tolist() == pytest.approx([1 / 4, 1 / 6])
    couplings = [0.7303287, 0.2696713, 0.8999159, 0.1000841]
    assert second.coupling.flatten().tolist() == pytest.approx(couplings, abs=1e-7)
    assert routed.parents.pose.flatten().tolist() == pytest.approx([5.0, 0.8490556], abs=1e-7)
    assert routed.parents.activation.tolist() == pytest.approx([0.0163197, 0.5872679], abs=1e-7)


def test_constant_lambda_on_paper():
    # The example above with λ_1 = λ_2 = 1.6: only the last line differs, by the factor 1.6 / 3.12.
    #   logit_0 = 1.6 · (0.5 − 1.8986123 · 0.9553076) = −2.1020140
    #   logit_1 = 1.6 · (1.0 − 3.0097857 · 0.2946924) = 0.1808624
    routed = em_routing(
        **ON_PAPER,
        beta_a=tensor([0.5, 1.0]),
        beta_u=tensor([0.8, 1.6]),
        iterations=2,
        lambda_=1.6,
        lambda_schedule="constant",
        variance_floor=9.0,
    )
    assert routed.parents.pose.flatten().tolist() == pytest.approx([5.0, 0.8490556], abs=1e-7)
    assert routed.parents.activation.tolist() == pytest.approx([0.1089012, 0.5450928], abs=1e-7)


def test_gritzman_on_paper():
    # The moments of t = 1 above. 100 J / I = 100 and λ_1 = 0.016, so λ_1 · 100 · 5/8 = 1:
    # logit = 0.016 β_a − (β_u + ln σ) = −ln σ again
    routed = em_routing(
        **ON_PAPER,
        beta_a=tensor([50.0, 100.0]),
        beta_u=tensor([0.8, 1.6]),
        variant="gritzman",
        iterations=1,
        lambda_=0.32,
        variance_floor=9.0,
    )
    assert routed.parents.pose.flatten().tolist() == pytest.approx([5.0, 2.0])
    assert routed.parents.activation.tolist() == pytest.approx([1 / 4, 1 / 6])


def test_official_on_paper():
    # μ = 0.9 · (5, 2) = (4.5, 1.8)
    # σ² = (0.25 + 0.75 = 1, 0.8 · 1.8² + 0.2 · 8.2² + 0.75 = 16.79), ln σ² = (0, 2.8207835)
    # λ_1 m = 16 · 0.05 · 5/8 = 1/2; D β_u (ln 2π + 1) = 1.4189385; λ_1 · 5000 β_a = 0.4
    # logit = −(0 + 1.4189385)/2 − 0.4 = −1.1094693, −(2.8207835 + 1.4189385)/2 − 0.4 = −2.5198610
    routed = em_routing(
        **ON_PAPER,
        beta_a=tensor(1e-4),
        beta_u=tensor(0.5),
        variant="official",
        iterations=1,
        lambda_=16.0,
        variance_floor=0.75,
    )
    assert routed.parents.pose.flatten().tolist() == pytest.approx([4.5, 1.8])
    assert routed.parents.activation.tolist() == pytest.approx([0.2479698, 0.0744775], abs=1e-7)


def test_official_mean_keeps_a_tenth_of_the_last_one():
    # One parent: R = 1 throughout, so μ = 0.9 · 1, then 0.9 + 0.1 · 0.9, then 0.9 + 0.1 · 0.99.
    votes, beta = tensor([[[1.0]], [[1.0]]]), tensor(0.0)
    steps = em_routing(
        votes, tensor([0.3, 0.9]), beta_a=beta, beta_u=beta, variant="official", keep="steps"
    ).steps
    poses = [step.parents.pose.item() for step in steps]
    assert poses == pytest.approx([0.9, 0.99, 0.999])


def test_lambda_at_tabulated_points():
    # One child, one parent, σ² = 1, β_u = 0: nothing costs anything, so logit(a) = λ_t β_a.
    steps = em_routing(
        tensor([[[2.0]]]),
        tensor([1.0]),
        beta_a=tensor(1000.0),
        beta_u=tensor(0.0),
        variance_floor=1.0,
        keep="steps",
    ).steps
    temperatures = [step.parents.activation.logit().item() / 1000 for step in steps]
    assert temperatures == pytest.approx([5.0e-4, 9.75e-4, 1.42625e-3], abs=1e-12)


def e_step(votes, coupling, activation, parents, floor):
    """Couplings after one step: the posterior of a mixture of Gaussians, by torch."""
    r = coupling * activation.unsqueeze(-1)
    mean = parents.pose.unsqueeze(-3)
    spread = (r.unsqueeze(-1) * (votes - mean) ** 2).sum(-3, keepdim=True)
    variance = spread / r.sum(-2)[..., None, :, None] + floor
    likelihood = torch.distributions.Normal(mean, variance.sqrt()).log_prob(votes).sum(-1)
    return parents.activation.unsqueeze(-2) * likelihood.exp()


@pytest.mark.parametrize("variant", VARIANTS)
def test_e_step_is_the_posterior_of_a_mixture(variant):
    arguments = random_arguments(2, 7, 3, 2, variant=variant)
    steps = route(arguments, variant=variant, lambda_=1.0, keep="steps").steps
    for before, after in itertools.pairwise(steps):
        joint = e_step(
            arguments["votes"],
            before.coupling,
            arguments["activation"],
            before.parents,
            FLOOR[variant],
        )
        assert_near(after.coupling, joint / joint.sum(-1, keepdim=True), 1e-10)
        assert (after.coupling - 1 / 3).abs().max() > 0.1


@pytest.mark.parametrize("variant", VARIANTS)
def test_e_step_of_all_windows_is_the_posterior_over_them(variant):
    child_id = OVERLAPPING.child_id()
    arguments = random_arguments(2, *child_id.shape, 3, 2, variant=variant)
    steps = route(
        arguments, variant=variant, compete="all", child_id=child_id, lambda_=1.0, keep="steps"
    ).steps
    joint = e_step(
        arguments["votes"],
        steps[0].coupling,
        arguments["activation"],
        steps[0].parents,
        FLOOR[variant],
    )
    for child in child_id.unique():
        seen = child_id == child
        posterior = joint[:, seen] / joint[:, seen].sum((-2, -1), keepdim=True)
        assert_near(steps[1].coupling[:, seen], posterior, 1e-10)


@pytest.mark.parametrize("variant", ["paper", "gritzman"])
def test_a_shift_of_all_votes_of_a_parent_shifts_its_pose_alone(variant):
    arguments, shift = random_arguments(2, 7, 3, 4), random_votes(3, 4)
    moved = arguments | {"votes": arguments["votes"] + shift}
    options = {"variant": variant, "lambda_": 1.0, "keep": "steps"}
    before, after = route(arguments, **options), route(moved, **options)
    for a, b in zip(before.steps, after.steps, strict=True):
        assert_near(b.coupling, a.coupling)
        assert_near(b.parents.activation, a.parents.activation)
        assert_near(b.parents.pose, a.parents.pose + shift)


def test_the_damped_mean_of_the_official_code_is_not_equivariant():
    arguments = random_arguments(7, 3, 4, variant="official")
    moved = arguments | {"votes": arguments["votes"] + 1}
    before, after = (route(x, variant="official", lambda_=1.0) for x in (arguments, moved))
    assert (before.parents.activation - after.parents.activation).abs().max() > 1e-3


def test_gritzman_is_the_paper_at_a_hundred_children_a_parent():
    arguments = random_arguments(200, 2, 3)
    options = {"variance_floor": 1e-4, "keep": "last"}
    paper, gritzman = (route(arguments, variant=v, **options) for v in ("paper", "gritzman"))
    assert_near(parts(gritzman), parts(paper))


def test_every_child_twice_costs_gritzman_nothing():
    arguments = random_arguments(4, 3, 2)
    twice = arguments | {name: arguments[name].repeat_interleave(2, 0) for name in ON_PAPER}
    for variant, costs_nothing in (("paper", False), ("gritzman", True)):
        options = {"variant": variant, "lambda_": 0.1, "iterations": 2}
        once, more = (route(x, **options).parents.activation for x in (arguments, twice))
        assert ((once - more).abs().max() < 1e-12) == costs_nothing


def test_a_child_without_activation_does_not_count():
    arguments = random_arguments(6, 3, 4)
    arguments["activation"][2] = 0
    kept = torch.tensor([0, 1, 3, 4, 5])
    others = arguments | {name: arguments[name][kept] for name in ON_PAPER}
    assert_near(list(route(arguments).parents), list(route(others).parents), 1e-10)


@pytest.mark.parametrize("variant", ["paper", "gritzman"])
def test_one_child_needs_the_floor(variant):
    arguments = random_arguments(1, 3, 4)
    arguments["activation"] = tensor([1.0])  # products with it do not round
    without = route(arguments, variant=variant, iterations=2, variance_floor=0.0)
    assert without.parents.pose.isnan().all()
    # With it, every parent takes the vote as it is, at a price that does not depend on it.
    routed = route(arguments, variant=variant, iterations=2, keep="last")
    assert_near(routed.parents.pose, arguments["votes"][0])
    other = route(arguments | {"votes": random_votes(1, 3, 4)}, variant=variant, iterations=2)
    assert_near(other.parents.activation, routed.parents.activation)


@pytest.mark.parametrize("variant", VARIANTS)
def test_windows_without_common_children_route_alone(variant):
    child_id = DISJOINT.child_id()
    arguments = random_arguments(2, *child_id.shape, 3, 2, variant=variant)
    options = {"variant": variant, "lambda_": 1.0, "keep": "steps"}
    every = route(arguments, compete="all", child_id=child_id, **options)
    alone = route(arguments, **options)
    assert_near(parts(every), parts(alone))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_child_of_many_windows_has_one_mass(variant):
    child_id = OVERLAPPING.child_id()
    arguments = random_arguments(2, *child_id.shape, 3, 2, variant=variant)
    steps = route(arguments, variant=variant, compete="all", child_id=child_id, keep="steps").steps
    many = 0
    for child in child_id.unique():
        seen = child_id == child
        many += int(seen.sum() > 1)
        # The official code gives every window the whole child at first.
        windows = int(seen.sum()) if variant == "official" else 1
        for step, mass in zip(steps, (windows, 1, 1), strict=True):
            total = step.coupling[:, seen].sum((-2, -1))
            assert_near(total, torch.full_like(total, mass))
    assert many > 0
    alone = route(arguments, variant=variant, keep="steps").steps
    assert (alone[-1].coupling - steps[-1].coupling).abs().max() > 0.1


def test_children_are_known_by_their_number_alone():
    child_id = OVERLAPPING.child_id()
    arguments = random_arguments(*child_id.shape, 3, 2)
    renamed = (child_id + 17) % 48
    here, there = (
        route(arguments, compete="all", child_id=name, keep="last") for name in (child_id, renamed)
    )
    assert_near(parts(there), parts(here))
