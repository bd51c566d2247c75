"""EM routing: an example on paper, its laws, every option against the loop twin, error texts."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from error_text import text_of
from reference.em import em_routing as twin
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


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_last_couplings_gave_the_parents(variant):
    arguments = random_arguments(2, 5, 3, 4, variant=variant)
    steps = route(arguments, variant=variant, keep="steps").steps
    r = steps[-1].coupling * arguments["activation"].unsqueeze(-1)
    mean = (r.unsqueeze(-1) * arguments["votes"]).sum(-3) / r.sum(-2).unsqueeze(-1)
    if variant == "official":
        mean = 0.9 * mean + 0.1 * steps[-2].parents.pose
    assert_near(steps[-1].parents.pose, mean)


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


def test_keep_counts_steps_and_names_no_children():
    for keep, count in (("none", 0), ("last", 1), ("steps", 4)):
        steps = route(random_arguments(5, 3, 4), iterations=4, keep=keep).steps
        assert len(steps) == count
        assert all(step.children is None for step in steps)


def test_defaults():
    arguments = random_arguments(5, 3, 4)
    for variant, floor in FLOOR.items():
        explicit = route(
            arguments,
            variant=variant,
            iterations=3,
            compete="window",
            lambda_=0.01,
            variance_floor=floor,
        )
        assert torch.equal(explicit.parents.pose, route(arguments, variant=variant).parents.pose)
    paper, plain = route(arguments, variant="paper"), route(arguments)
    assert torch.equal(paper.parents.activation, plain.parents.activation)


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


# no batch axis, one child, one parent, both, a batch of one, two batch axes
SHAPES = [(5, 3, 4), (1, 3, 2), (4, 1, 3), (1, 1, 1), (1, 3, 2, 3), (2, 1, 2, 3, 2)]
OPTIONS = [
    {},
    {"iterations": 1},
    {"iterations": 2, "lambda_": 1.0},
    {"variance_floor": 0.3, "lambda_": 0.1},
    {"iterations": 2, "lambda_": 0.3, "lambda_schedule": "constant"},
]


def check_parity(arguments, options, device, dtype, tolerance):
    theirs = {name: x.requires_grad_() for name, x in arguments.items()}
    ours = {name: x.detach().to(device, dtype).requires_grad_() for name, x in theirs.items()}
    local = {name: x.to(device) if torch.is_tensor(x) else x for name, x in options.items()}
    routed = route(ours, **local, keep="steps")
    pose, activation, couplings = twin(**theirs, **options)
    result = torch.cat([x.flatten() for x in parts(routed)])
    reference = torch.cat([x.flatten() for x in (pose, activation, *couplings)])
    torch.testing.assert_close(result.cpu().double(), reference, rtol=0, atol=tolerance)
    weight = torch.randn_like(reference)
    gradients = torch.autograd.grad(
        (result * weight.to(result)).sum(), ours.values(), materialize_grads=True
    )
    expected = torch.autograd.grad(
        (reference * weight).sum(), theirs.values(), materialize_grads=True
    )
    for name, a, b in zip(ours, gradients, expected, strict=True):
        error = (a.cpu().double() - b).abs().max().item()
        largest = max(1.0, b.abs().max().item())
        assert error <= tolerance * largest, f"gradient of {name} at {pose.shape}"


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
def test_parity_with_the_twin(variant, options, device, dtype, tolerance):
    for shape in SHAPES:
        arguments = random_arguments(*shape, variant=variant)
        check_parity(arguments, options | {"variant": variant}, device, dtype, tolerance)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
def test_parity_with_the_twin_where_all_windows_compete(variant, options, device, dtype, tolerance):
    child_id = OVERLAPPING.child_id()
    arguments = random_arguments(*child_id.shape, 2, 2, variant=variant)
    options = options | {"variant": variant, "compete": "all", "child_id": child_id}
    check_parity(arguments, options, device, dtype, tolerance)


def test_parity_with_batch_axes_before_the_windows(device, dtype, tolerance):
    child_id = torch.tensor([[0, 1], [1, 2]])
    arguments = random_arguments(2, 1, 2, 2, 3, 2)
    options = {"compete": "all", "child_id": child_id, "lambda_": 1.0}
    check_parity(arguments, options, device, dtype, tolerance)


@pytest.mark.parametrize("dead", [1, 5])
@pytest.mark.parametrize("variant", VARIANTS)
def test_parity_without_activations(variant, dead, device, dtype, tolerance):
    arguments = random_arguments(5, 3, 2, variant=variant)
    arguments["activation"][:dead] = 0
    check_parity(arguments, {"variant": variant}, device, dtype, tolerance)


def test_betas_of_any_broadcast_shape():
    arguments = random_arguments(5, 3, 4)
    for narrow in (tensor(0.7), tensor([0.7])):
        betas = {"beta_a": narrow, "beta_u": -narrow}
        wide = {name: beta.expand(3) for name, beta in betas.items()}
        narrow_parents, wide_parents = (
            route(arguments | x, lambda_=1.0).parents for x in (betas, wide)
        )
        assert_near(list(narrow_parents), list(wide_parents))


def test_empty_batch():
    arguments = random_arguments(0, 5, 3, 4)
    arguments["beta_a"].requires_grad_()
    routed = route(arguments, keep="last")
    assert routed.parents.pose.shape == (0, 3, 4)
    assert routed.parents.activation.shape == (0, 3)
    assert routed.steps[0].coupling.shape == (0, 5, 3)
    routed.parents.activation.sum().backward()
    assert torch.equal(arguments["beta_a"].grad, torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_computes_in_float32(dtype):
    arguments = {name: x.to(dtype) for name, x in random_arguments(2, 40, 3, 4).items()}
    wide = {name: x.float() for name, x in arguments.items()}
    for a, b in zip(*(parts(route(x, keep="last")) for x in (arguments, wide)), strict=True):
        assert a.dtype == dtype
        assert torch.equal(a, b.to(dtype))


def test_autocast_changes_nothing():
    arguments = {name: x.float() for name, x in random_arguments(2, 5, 3, 4).items()}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = route(arguments).parents
    assert all(map(torch.equal, inside, route(arguments).parents))


def test_parameters_follow_the_precision_of_the_votes():
    arguments = random_arguments(5, 3, 4)
    single = {name: x if name == "votes" else x.float() for name, x in arguments.items()}
    double = {name: x.double() for name, x in single.items()}
    assert route(single).parents.pose.dtype == torch.float64
    assert all(map(torch.equal, route(single).parents, route(double).parents))


def test_sizes_can_be_asked_without_computing():
    arguments = {name: x.to("meta") for name, x in random_arguments(2, 5, 3, 4).items()}
    routed = route(arguments, keep="last")
    assert routed.parents.pose.shape == (2, 3, 4)
    assert routed.parents.activation.shape == (2, 3)
    assert routed.steps[0].coupling.shape == (2, 5, 3)


@given(
    sizes=st.tuples(*[st.integers(1, 5)] * 3),
    iterations=st.integers(1, 4),
    variant=st.sampled_from(VARIANTS),
    lambda_=st.sampled_from([0.01, 1.0]),
    exponent=st.integers(-30, 4),
    dead=st.floats(0, 1),
    twins=st.booleans(),
    everywhere=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_values_and_gradients_are_finite(
    sizes, iterations, variant, lambda_, exponent, dead, twins, everywhere, seed
):
    generator = torch.Generator().manual_seed(seed)
    votes = torch.randn(2, *sizes, generator=generator) * 10.0**exponent
    votes = votes * (torch.rand(2, *sizes[:2], 1, generator=generator) >= dead)
    votes = (votes[:, :1].expand_as(votes) if twins else votes).clone().requires_grad_()
    activation = torch.rand(2, sizes[0], generator=generator)
    activation = (activation * (activation >= dead)).requires_grad_()
    betas = (torch.randn(2, sizes[1], generator=generator) * BETA_A[variant]).requires_grad_()
    # Both samples are windows on the same children.
    child_id = torch.arange(sizes[0]).expand(2, -1) if everywhere else None
    routed = em_routing(
        votes,
        activation,
        beta_a=betas[0],
        beta_u=betas[1],
        iterations=iterations,
        variant=variant,
        lambda_=lambda_,
        compete="all" if everywhere else "window",
        child_id=child_id,
        keep="last",
    )
    values = parts(routed)
    gradients = torch.autograd.grad(sum(x.sum() for x in values), (votes, activation, betas))
    for x in (*values, *gradients):
        assert x.isfinite().all()
    assert (routed.parents.activation <= 1).all()


VOTES, ACTIVATION, BETA = torch.zeros(2, 5, 3, 4), torch.zeros(2, 5), torch.zeros(3)
CHILD_ID = torch.zeros(2, 5, dtype=torch.int64)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"votes": VOTES[0, 0]}, ["votes must have the axes"]),
        ({"votes": VOTES.long()}, ["votes must be floating point"]),
        ({"activation": None}, ["activation", "none came"]),
        ({"activation": ACTIVATION[:, :4]}, ["activation", "[2, 5]", "[2, 4]"]),
        ({"activation": ACTIVATION[0]}, ["activation", "[2, 5]", "[5]"]),
        ({"activation": ACTIVATION.long()}, ["activation", "torch.int64"]),
        ({"variant": "offical"}, ["variant='offical' is unknown", "did you mean 'official'?"]),
        (
            {"variant": "hinton"},
            ["variant='hinton' is unknown; did you mean 'official'? known: gritzman, official"],
        ),
        ({"compete": "windows"}, ["compete='windows' is unknown", "did you mean 'window'?"]),
        ({"compete": "all"}, ["child_id", 'compete="all"']),
        ({"child_id": CHILD_ID}, ["child_id", 'compete="window"']),
        ({"compete": "all", "child_id": CHILD_ID.int()}, ["child_id", "torch.int32"]),
        ({"compete": "all", "child_id": CHILD_ID[:, :4]}, ["child_id", "[2, 4]"]),
        (
            {
                "votes": VOTES[0],
                "activation": ACTIVATION[0],
                "compete": "all",
                "child_id": CHILD_ID[0],
            },
            ["child_id", "[5, 3, 4]"],
        ),
        ({"beta_a": torch.zeros(4)}, ["beta_a must broadcast to [parent] = [3]", "[4]"]),
        ({"beta_u": torch.zeros(2, 3)}, ["beta_u must broadcast to [parent] = [3]", "[2, 3]"]),
        ({"iterations": 0}, ["iterations", "came as 0"]),
        ({"lambda_schedule": "fixed"}, ["lambda_schedule='fixed' is unknown", "constant"]),
        ({"keep": "step"}, ["keep='step' is unknown"]),
        ({"lambda_": math.nan}, ["lambda_ must be a finite number from 0 up", "came as nan"]),
        ({"variance_floor": -1.0}, ["variance_floor must be a finite number", "came as -1.0"]),
    ],
)
def test_errors_say_what_to_mend(options, words):
    arguments = {"votes": VOTES, "activation": ACTIVATION, "beta_a": BETA, "beta_u": BETA}
    text = text_of(lambda: route(arguments | options))
    assert [word for word in words if word not in text] == []
