"""Distance routing: three iterations on paper, its laws, every option against the loop twin, error
texts."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference.distance import distance_routing as twin
from torchcaps.errors import TorchcapsError
from torchcaps.ops import distance_routing, squash, uniform_routing

# Above the length of every vote here: nothing is shortened.
LONG = torch.tensor(1e3, dtype=torch.float64)


def random_votes(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


def random_lengths(*shape):
    return 0.2 + 2 * torch.rand(*shape, dtype=torch.float64)


def agree_and_scatter():
    """Two children: both say 1 to parent 0; to parent 1 they say 1 and −1."""
    return torch.tensor([[[1.0], [1.0]], [[1.0], [-1.0]]], dtype=torch.float64)


def shortened(votes, lengths):
    norm = votes.norm(dim=-1)
    return votes * (torch.minimum(norm, lengths[..., None]) / norm)[..., None]


def distances(routed, votes):
    """Of every step, [t, *b, i, j]."""
    return torch.stack(
        [(step.parents.pose.unsqueeze(-3) - votes).norm(dim=-1) for step in routed.steps]
    )


def test_three_iterations_on_paper():
    # The numerator for p = 0.9, J = 2 is ln 0.9 − ln 0.1 = ln 9, and d_p − d_o = −d_o/2.
    # t = 1: c = 1/2, s = (1, 0), v = (1/2, 0); d_i0 = 1/2, d_i1 = 1, d_o = 3/4
    #        b_i0 − b_i1 = (2 ln 9 / d_o) · (d_i1 − d_i0) = 4/3 ln 9
    # t = 2: c_i0 = 1/(1 + 9^(−4/3)) = 0.9492920, s_0 = 1.8985840, v_0 = s²/(1 + s²) = 0.7828269
    #        d_i0 = 0.2171731, d_i1 = 1, d_o = 0.6085866, b_i0 − b_i1 = 5.6526
    # t = 3: c_i0 = 0.9965039, s_0 = 1.9930077, v_0 = 0.7988769
    routed = distance_routing(agree_and_scatter(), torch.ones(2), keep="steps")
    for step, coupling, length in zip(
        routed.steps,
        [0.5, 0.9492920, 0.9965039],
        [0.5, 0.7828269, 0.7988769],
        strict=True,
    ):
        assert step.coupling[:, 0].tolist() == pytest.approx([coupling] * 2, abs=1e-7)
        assert step.parents.activation.tolist() == pytest.approx([length, 0.0], abs=1e-7)
    assert routed.scale.tolist() == pytest.approx([0.75, 0.6085866], abs=1e-7)
    assert routed.parents.pose.flatten().tolist() == pytest.approx([0.7988769, 0.0], abs=1e-7)


def near_and_average(n_out):
    """One child: without a squash v_j = û_j/J, so d_j = ‖û_j‖ (J − 1)/J. The first parent is at
    distance 50, the others at 100."""
    votes = torch.full((1, n_out, 1), 100.0, dtype=torch.float64)
    votes[:, 0] = 50
    return votes * n_out / (n_out - 1)


@pytest.mark.parametrize(("n_out", "numerator"), [(2, 2.197), (10, 4.394), (32, 5.631)])
def test_a_parent_at_half_the_mean_distance_gets_probability_p(n_out, numerator):
    votes = near_and_average(n_out)
    mean = torch.tensor([100.0], dtype=torch.float64)
    for p in (0.9, 0.6):
        routed = distance_routing(
            votes, LONG, iterations=2, scale=mean, p=p, squash="none", keep="last"
        )
        coupling = routed.steps[0].coupling[0]
        others = [pytest.approx((1 - p) / (n_out - 1), abs=1e-9)] * (n_out - 1)
        assert coupling.tolist() == [pytest.approx(p, abs=1e-9), *others]
        if p == 0.9:
            assert (coupling[0] / coupling[1]).log().item() == pytest.approx(numerator, abs=1e-3)


def test_logits_are_replaced_by_the_last_distances():
    votes, lengths = random_votes(2, 5, 3, 4), random_lengths(2, 5)
    routed = distance_routing(votes, lengths, iterations=4, keep="steps")
    d = distances(routed, shortened(votes, lengths))
    mean = d.mean((-2, -1), keepdim=True)
    logits = -2 * math.log(0.9 * 2 / 0.1) * d / mean
    for t in range(3):
        torch.testing.assert_close(
            routed.steps[t + 1].coupling, logits[t].softmax(-1), rtol=0, atol=1e-7
        )
        torch.testing.assert_close(routed.scale[:, t], mean[t].flatten(), rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("vote", "length", "expected", "by_vote", "by_length"),
    [
        # longer: the slope along the vote is gone, that across it is 2.5/5; the length moves it
        ((3.0, 4.0), 2.5, (1.5, 2.0), ((0.32, -0.24), (-0.24, 0.18)), (0.6, 0.8)),
        ((3.0, 4.0), 0.0, (0.0, 0.0), ((0.0, 0.0), (0.0, 0.0)), (0.6, 0.8)),
        # so long that no number holds its square
        ((3e200, 4e200), 2.5, (1.5, 2.0), ((0.0, 0.0), (0.0, 0.0)), (0.6, 0.8)),
        # shorter, and nothing at all: as they are
        ((0.3, 0.4), 2.5, (0.3, 0.4), ((1.0, 0.0), (0.0, 1.0)), (0.0, 0.0)),
        ((3e-9, 4e-9), 1e-8, (3e-9, 4e-9), ((1.0, 0.0), (0.0, 1.0)), (0.0, 0.0)),
        # below SHORTEST: as they are, even where the child is nothing
        ((6e-18, 8e-18), 0.0, (0.0, 0.0), ((0.0, 0.0), (0.0, 0.0)), (0.6, 0.8)),
        ((6e-19, 7e-19), 0.0, (6e-19, 7e-19), ((1.0, 0.0), (0.0, 1.0)), (0.0, 0.0)),
        ((0.0, 0.0), 2.5, (0.0, 0.0), ((1.0, 0.0), (0.0, 1.0)), (0.0, 0.0)),
        ((0.0, 0.0), 0.0, (0.0, 0.0), ((1.0, 0.0), (0.0, 1.0)), (0.0, 0.0)),
    ],
)
def test_votes_are_no_longer_than_their_child_on_paper(vote, length, expected, by_vote, by_length):
    # One child, one parent, no squash: the pose is the rescaled vote.
    votes = torch.tensor(vote, dtype=torch.float64, requires_grad=True)
    activation = torch.tensor([length], dtype=torch.float64, requires_grad=True)

    def pose(votes, activation):
        shaped = votes.view(1, 1, 2)
        return distance_routing(shaped, activation, iterations=1, squash="none")[0].pose.view(2)

    assert pose(votes, activation).tolist() == pytest.approx(expected, rel=1e-12, abs=0)
    for k in range(2):
        slopes = torch.autograd.grad(pose(votes, activation)[k], (votes, activation))
        assert slopes[0].tolist() == pytest.approx(by_vote[k], abs=1e-12)
        assert slopes[1].tolist() == pytest.approx([by_length[k]], abs=1e-12)


def test_every_vote_is_held_to_its_own_child():
    votes, lengths = random_votes(2, 5, 3, 4), random_lengths(2, 5)
    held = shortened(votes, lengths)
    torch.testing.assert_close(
        distance_routing(votes, lengths).parents.pose,
        distance_routing(held, LONG).parents.pose,
        rtol=0,
        atol=1e-12,
    )
    assert not torch.allclose(held, votes)


def test_shortened_votes_are_what_is_summed_and_what_is_measured():
    votes = 7 * agree_and_scatter()
    routed = distance_routing(votes, torch.ones(2), keep="steps")
    expected = distance_routing(agree_and_scatter(), torch.ones(2), keep="steps")
    for ours, theirs in zip(routed.steps, expected.steps, strict=True):
        torch.testing.assert_close(ours.coupling, theirs.coupling, rtol=0, atol=1e-12)
        torch.testing.assert_close(ours.parents.pose, theirs.parents.pose, rtol=0, atol=1e-12)


def test_votes_much_shorter_than_their_parents_do_not_attract():
    # Twenty votes of 1/10: s_0 = 1, v_0 = 1/2 at distance 0.4; v_1 = 0 is nearer, at 0.1, though
    # the votes for it cancel. d_o = 1/4, b_i0 − b_i1 = (2 ln 9 / d_o) (0.1 − 0.4) = −2.4 ln 9
    votes = agree_and_scatter().repeat(10, 1, 1) / 10
    routed = distance_routing(votes, LONG, iterations=2, keep="last")
    coupling = routed.steps[0].coupling[:, 0].tolist()
    assert coupling == pytest.approx([1 / (1 + 9**2.4)] * 20, abs=1e-7)


def test_scale_has_one_distance_for_each_update():
    votes, lengths = random_votes(2, 6, 5, 3, 4), random_lengths(2, 6, 5)
    for iterations in (2, 4):
        for scale, lead in (("sample", (2, 6)), ("batch", ())):
            routed = distance_routing(votes, lengths, iterations=iterations, scale=scale)
            assert routed.scale.shape == (*lead, iterations - 1)
    for scale in ("sample", "batch", torch.ones(0)):
        assert distance_routing(votes, lengths, iterations=1, scale=scale).scale is None


def test_a_sample_alone_has_its_own_distances():
    votes, lengths = random_votes(2, 3, 5, 3, 4), random_lengths(2, 3, 5)
    batch = distance_routing(votes, lengths)
    for b in range(2):
        for n in range(3):
            alone = distance_routing(votes[b, n], lengths[b, n])
            for ours, theirs in (
                (batch.scale[b, n], alone.scale),
                (batch.parents.pose[b, n], alone.parents.pose),
            ):
                torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_the_batch_has_one_mean_over_all_leading_axes():
    votes, lengths = random_votes(2, 3, 5, 3, 4), random_lengths(2, 3, 5)
    batch = distance_routing(votes, lengths, scale="batch", keep="steps")
    d = distances(batch, shortened(votes, lengths))
    for t in range(2):
        assert batch.scale[t].item() == pytest.approx(d[t].mean().item(), abs=1e-7)
    flat = distance_routing(votes.flatten(0, 1), lengths.flatten(0, 1), scale="batch")
    torch.testing.assert_close(batch.scale, flat.scale, rtol=0, atol=1e-12)
    alone = distance_routing(votes[0, 0], lengths[0, 0], scale="batch")
    assert (alone.parents.pose - batch.parents.pose[0, 0]).abs().max() > 1e-3


def test_a_batch_of_one_is_a_sample():
    votes, lengths = random_votes(1, 5, 3, 4), random_lengths(1, 5)
    sample, batch = (distance_routing(votes, lengths, scale=s) for s in ("sample", "batch"))
    torch.testing.assert_close(sample.parents, batch.parents, rtol=0, atol=1e-14)
    torch.testing.assert_close(sample.scale[0], batch.scale, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_measured_distances_given_back_change_no_bit(dtype):
    votes, lengths = random_votes(4, 5, 3, 4, dtype=dtype), random_lengths(4, 5).to(dtype)
    measured = distance_routing(votes, lengths, scale="batch", keep="last")
    stored = distance_routing(votes, lengths, scale=measured.scale, keep="last")
    assert torch.equal(stored.parents.pose, measured.parents.pose)
    assert torch.equal(stored.steps[0].coupling, measured.steps[0].coupling)
    assert torch.equal(stored.scale, measured.scale)


def test_stored_distances_are_used_in_place_of_measured_ones():
    votes, lengths = random_votes(4, 5, 3, 4), random_lengths(4, 5)
    scale = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    routed = distance_routing(votes, lengths, scale=scale, keep="steps")
    assert torch.equal(routed.scale, scale)
    d = distances(routed, shortened(votes, lengths))
    for t in range(2):
        logits = -2 * math.log(0.9 * 2 / 0.1) * d[t] / scale[t]
        torch.testing.assert_close(
            routed.steps[t + 1].coupling, logits.softmax(-1), rtol=0, atol=1e-7
        )
    (gradient,) = torch.autograd.grad(routed.parents.pose.sum(), scale)
    assert (gradient.abs() > 1e-6).all()
    alone = distance_routing(votes[0], lengths[0], scale=scale).parents.pose
    torch.testing.assert_close(routed.parents.pose[0], alone, rtol=0, atol=1e-12)


def test_gradients_flow_through_the_mean_distance():
    votes, lengths = random_votes(5, 3, 4).requires_grad_(), random_lengths(5)
    measured = distance_routing(votes, lengths)
    stored = distance_routing(votes, lengths, scale=measured.scale.detach())
    assert torch.equal(measured.parents.pose, stored.parents.pose)
    weight = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4)
    a, b = (
        torch.autograd.grad((r.parents.pose * weight).sum(), votes)[0] for r in (measured, stored)
    )
    assert (a - b).abs().max() > 1e-4


def test_votes_that_all_meet_their_parent():
    # I = J equal votes without a squash: v_j = (I/J) û_j = û_j, every distance is the guard's 1e-4.
    votes = torch.full((2, 2, 3), 0.3, dtype=torch.float64, requires_grad=True)
    for scale in ("sample", "batch"):
        routed = distance_routing(votes, LONG, scale=scale, squash="none", keep="last")
        assert routed.steps[0].coupling.tolist() == [[0.5, 0.5]] * 2
        assert routed.scale.tolist() == pytest.approx([1e-4, 1e-4], rel=1e-12)
        total = routed.parents.pose.square().sum() + routed.scale.sum()
        (gradient,) = torch.autograd.grad(total, votes)
        # s_jk² + … = 6 · 0.3² with slope 2 · 0.3 · c_ij, and a distance is flat at its minimum
        torch.testing.assert_close(gradient, torch.full_like(votes, 0.3), rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", ["sample", "batch", torch.tensor([0.3, 0.7])])
def test_one_parent_takes_everything(scale):
    votes, lengths = random_votes(2, 5, 1, 4).requires_grad_(), random_lengths(2, 5)
    routed = distance_routing(votes, lengths, scale=scale, keep="steps")
    expected = distance_routing(votes, lengths, iterations=1).parents
    assert all((step.coupling == 1).all() for step in routed.steps)
    assert routed.scale.isfinite().all()
    torch.testing.assert_close(routed.parents.pose, expected.pose, rtol=0, atol=1e-14)
    a, b = (torch.autograd.grad(p.pose.sum(), votes)[0] for p in (routed.parents, expected))
    torch.testing.assert_close(a, b, rtol=0, atol=1e-14)


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_bias_enters_before_every_squash(iterations):
    # Zero votes: every v is g(bias), and (3, 4) squashes to 25/26 of its direction.
    bias = torch.tensor([[3.0, 4.0], [0.0, 1.0]], dtype=torch.float64)
    votes = torch.zeros(5, 2, 2, dtype=torch.float64)
    routed = distance_routing(votes, LONG, iterations=iterations, bias=bias, keep="steps")
    assert len(routed.steps) == iterations
    for step in routed.steps:
        assert step.parents.pose.flatten().tolist() == pytest.approx([15 / 26, 20 / 26, 0, 0.5])


@pytest.mark.parametrize("kind", ["hinton", "exp", "none"])
def test_the_last_couplings_gave_the_parents(kind):
    votes, lengths, bias = random_votes(2, 5, 3, 4), random_lengths(2, 5), random_votes(3, 4)
    routed = distance_routing(votes, lengths, bias=bias, squash=kind, keep="last")
    mixed = (routed.steps[0].coupling[..., None] * shortened(votes, lengths)).sum(-3)
    torch.testing.assert_close(routed.parents.pose, squash(mixed + bias, kind), rtol=0, atol=1e-12)


def test_one_iteration_is_uniform_routing():
    votes, bias = random_votes(2, 5, 3, 4), random_votes(3, 4)
    torch.testing.assert_close(
        distance_routing(votes, LONG, iterations=1, bias=bias).parents,
        uniform_routing(votes, bias=bias).parents,
        rtol=0,
        atol=1e-14,
    )


def test_defaults():
    votes, lengths = random_votes(2, 5, 3, 4), random_lengths(2, 5)
    explicit = {"iterations": 3, "scale": "sample", "p": 0.9, "squash": "hinton", "detach": "none"}
    expected = distance_routing(votes, lengths, **explicit)
    assert torch.equal(distance_routing(votes, lengths).parents.pose, expected.parents.pose)
    for other in ({"iterations": 4}, {"scale": "batch"}, {"p": 0.8}, {"squash": "exp"}):
        changed = distance_routing(votes, lengths, **other).parents.pose
        assert (changed - expected.parents.pose).abs().max() > 1e-4


def test_keep_counts_steps_and_names_no_children():
    votes = random_votes(5, 3, 4)
    for keep, count in (("none", 0), ("last", 1), ("steps", 4)):
        steps = distance_routing(votes, LONG, iterations=4, keep=keep).steps
        assert len(steps) == count
        assert all(step.children is None for step in steps)


def gradients_of(detach, *tensors, iterations=3):
    votes, lengths, bias = [x.detach().clone().requires_grad_() for x in tensors]
    routed = distance_routing(votes, lengths, bias=bias, detach=detach, iterations=iterations)
    weight = torch.linspace(-1, 1, routed.parents.pose.numel(), dtype=torch.float64)
    total = (routed.parents.pose.flatten() * weight).sum()
    return torch.autograd.grad(total, (votes, lengths, bias))


def test_detach_votes_stops_the_votes_of_all_but_the_last_iteration():
    votes, lengths, bias = random_votes(5, 3, 4), random_lengths(5), random_votes(3, 4)
    plain = distance_routing(votes, lengths, bias=bias, keep="last")
    stopped = distance_routing(votes, lengths, bias=bias, detach="votes", keep="last")
    assert torch.equal(plain.parents.pose, stopped.parents.pose)
    assert torch.equal(plain.scale, stopped.scale)
    none, detached = (gradients_of(d, votes, lengths, bias) for d in ("none", "votes"))
    # Votes and lengths have the gradient of a sum with constant couplings; the bias keeps its own.
    leaves = [x.clone().requires_grad_() for x in (votes, lengths)]
    mixed = (plain.steps[0].coupling[..., None] * shortened(*leaves)).sum(-3)
    weight = torch.linspace(-1, 1, 12, dtype=torch.float64)
    total = (squash(mixed + bias).flatten() * weight).sum()
    expected = torch.autograd.grad(total, leaves)
    for k in range(2):
        torch.testing.assert_close(detached[k], expected[k], rtol=0, atol=1e-12)
        assert (none[k] - detached[k]).abs().max() > 1e-3
    assert torch.equal(none[2], detached[2])


def test_detach_iterations_makes_all_before_the_last_one_a_constant():
    votes, lengths, bias = random_votes(5, 3, 4), random_lengths(5), random_votes(3, 4)
    plain = distance_routing(votes, lengths, bias=bias, keep="last")
    stopped = distance_routing(votes, lengths, bias=bias, detach="iterations", keep="last")
    assert torch.equal(plain.parents.pose, stopped.parents.pose)
    found = gradients_of("iterations", votes, lengths, bias)
    # The gradient of a sum with constant couplings, of the bias too.
    leaves = [x.clone().requires_grad_() for x in (votes, lengths, bias)]
    mixed = (plain.steps[0].coupling[..., None] * shortened(*leaves[:2])).sum(-3)
    weight = torch.linspace(-1, 1, 12, dtype=torch.float64)
    total = (squash(mixed + leaves[2]).flatten() * weight).sum()
    for ours, expected in zip(found, torch.autograd.grad(total, leaves), strict=True):
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)
    none = gradients_of("none", votes, lengths, bias)
    assert (none[2] - found[2]).abs().max() > 1e-3


def test_one_iteration_has_nothing_to_detach():
    tensors = random_votes(5, 3, 4), random_lengths(5), random_votes(3, 4)
    none = gradients_of("none", *tensors, iterations=1)
    for detach in ("votes", "iterations"):
        detached = gradients_of(detach, *tensors, iterations=1)
        for a, b in zip(none, detached, strict=True):
            assert torch.equal(a, b)


STORED = torch.tensor([0.7, 1.3], dtype=torch.float64)
OPTIONS = [
    pytest.param({"iterations": t, "squash": kind, "scale": scale}, id=f"{kind}-{t}-{scale}")
    for kind in ("hinton", "exp", "none")
    for t in (1, 3)
    for scale in ("sample", "batch")
] + [
    pytest.param({"scale": STORED}, id="stored"),
    pytest.param({"p": 0.7}, id="p"),
    pytest.param({"detach": "votes", "squash": "exp"}, id="detach-sample"),
    pytest.param({"detach": "votes", "scale": "batch"}, id="detach-batch"),
    pytest.param({"detach": "votes", "scale": STORED}, id="detach-stored"),
    pytest.param({"detach": "iterations"}, id="iterations-sample"),
    pytest.param({"detach": "iterations", "scale": "batch"}, id="iterations-batch"),
    pytest.param({"detach": "iterations", "scale": STORED}, id="iterations-stored"),
]
# no batch axis, one child, one parent, both, a batch of one, two batch axes
SHAPES = [(5, 3, 4), (1, 3, 2), (4, 1, 3), (1, 1, 1), (1, 3, 2, 3), (2, 2, 2, 3, 2)]


@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("options", OPTIONS)
def test_parity_with_the_twin(options, with_bias, device, dtype, tolerance):
    for shape in SHAPES:
        theirs = {
            "votes": random_votes(*shape).requires_grad_(),
            "activation": random_lengths(*shape[:-2]).requires_grad_(),
        }
        if with_bias:
            theirs["bias"] = random_votes(*shape[-2:]).requires_grad_()
        ours = {name: x.detach().to(device, dtype).requires_grad_() for name, x in theirs.items()}
        moved = {k: x.to(device, dtype) if torch.is_tensor(x) else x for k, x in options.items()}
        parents, steps, scale = distance_routing(**ours, **moved, keep="steps")
        expected, couplings, means = twin(**theirs, **options)
        results = [parents.pose, *(step.coupling for step in steps)]
        references = [expected, *couplings]
        assert (scale is None) == (means is None) == (len(steps) == 1)
        if scale is not None:
            assert scale.shape == means.shape
            results.append(scale)
            references.append(means)
        result = torch.cat([x.flatten() for x in results])
        reference = torch.cat([x.flatten() for x in references])
        torch.testing.assert_close(result.cpu().double(), reference, rtol=0, atol=tolerance)
        weight = torch.randn_like(reference)
        # Where no vote is longer than its child, the twin does not touch the lengths.
        gradients = torch.autograd.grad((result * weight.to(result)).sum(), ours.values())
        expected_gradients = torch.autograd.grad(
            (reference * weight).sum(), theirs.values(), materialize_grads=True
        )
        for a, b in zip(gradients, expected_gradients, strict=True):
            torch.testing.assert_close(a.cpu().double(), b, rtol=0, atol=tolerance)


def test_lengths_broadcast():
    votes, lengths = random_votes(2, 5, 3, 4), random_lengths(5)
    for narrow in (lengths, lengths[:1], lengths[0]):
        torch.testing.assert_close(
            distance_routing(votes, narrow).parents.pose,
            distance_routing(votes, narrow.expand(2, 5)).parents.pose,
            rtol=0,
            atol=1e-14,
        )


@pytest.mark.parametrize("scale", ["sample", "batch"])
def test_empty_batch(scale):
    votes, bias = torch.zeros(0, 5, 3, 4), torch.ones(3, 4, requires_grad=True)
    routed = distance_routing(votes, torch.ones(0, 5), scale=scale, bias=bias, keep="last")
    assert routed.parents.pose.shape == (0, 3, 4)
    assert routed.parents.activation.shape == (0, 3)
    assert routed.steps[0].coupling.shape == (0, 5, 3)
    assert routed.scale.shape == ((0, 2) if scale == "sample" else (2,))
    routed.parents.pose.sum().backward()
    assert torch.equal(bias.grad, torch.zeros(3, 4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_computes_in_float32(dtype):
    votes, lengths = random_votes(2, 40, 3, 4).to(dtype), random_lengths(2, 40).to(dtype)
    half, wide = (
        distance_routing(v, a, keep="last")
        for v, a in ((votes, lengths), (votes.float(), lengths.float()))
    )
    for a, b in (
        (half.parents.pose, wide.parents.pose),
        (half.steps[0].coupling, wide.steps[0].coupling),
    ):
        assert a.dtype == dtype
        assert torch.equal(a, b.to(dtype))
    assert torch.equal(half.scale, wide.scale)


def test_autocast_changes_nothing():
    votes, lengths = random_votes(2, 5, 3, 4).float(), random_lengths(2, 5).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = distance_routing(votes, lengths)
    outside = distance_routing(votes, lengths)
    assert torch.equal(inside.parents.pose, outside.parents.pose)
    assert torch.equal(inside.scale, outside.scale)


@given(
    sizes=st.tuples(*[st.integers(1, 5)] * 3),
    iterations=st.integers(1, 4),
    scale=st.sampled_from(["sample", "batch"]),
    kind=st.sampled_from(["hinton", "exp", "none"]),
    exponents=st.tuples(*[st.integers(-30, 4)] * 2),
    dead=st.floats(0, 1),
    twins=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_values_and_gradients_are_finite(
    sizes, iterations, scale, kind, exponents, dead, twins, seed
):
    generator = torch.Generator().manual_seed(seed)
    n_in, n_out, size = sizes
    votes = torch.randn(2, n_in, n_out, size, generator=generator) * 10.0 ** exponents[0]
    votes = votes * (torch.rand(2, n_in, n_out, 1, generator=generator) >= dead)
    votes = (votes[:, :1].expand_as(votes) if twins else votes).clone().requires_grad_()
    lengths = torch.rand(2, n_in, generator=generator) * 10.0 ** exponents[1]
    lengths = (lengths * (torch.rand(2, n_in, generator=generator) >= dead)).requires_grad_()
    routed = distance_routing(
        votes, lengths, iterations=iterations, scale=scale, squash=kind, keep="last"
    )
    coupling = routed.steps[0].coupling
    total = routed.parents.pose.sum() + routed.parents.activation.sum() + coupling.sum()
    if routed.scale is not None:
        total = total + routed.scale.sum()
        assert routed.scale.isfinite().all()
        assert routed.scale.min() > 0
    gradients = torch.autograd.grad(total, (votes, lengths))
    for x in (*routed.parents, coupling, *gradients):
        assert x.isfinite().all()
    if kind != "none":
        assert routed.parents.activation.max() <= 1 + 1e-6
    torch.testing.assert_close(coupling.sum(-1), torch.ones(2, n_in))


VOTES, LENGTHS = torch.zeros(2, 5, 3, 4), torch.ones(2, 5)


@pytest.mark.parametrize(
    ("votes", "activation", "options", "message"),
    [
        (
            VOTES[0, 0],
            LENGTHS,
            {},
            "votes must have the axes [*batch, child, parent, pose], at least three, but came with "
            "shape [3, 4]; one child or one parent still needs its axis: use unsqueeze.",
        ),
        (
            VOTES.long(),
            LENGTHS,
            {},
            "votes must be floating point, but came as torch.int64; convert them with "
            "votes.float().",
        ),
        (
            VOTES[:, :0],
            LENGTHS[:, :0],
            {},
            "votes need at least one child, one parent and one pose component, but came with shape "
            "[2, 0, 3, 4]; only batch axes may be empty.",
        ),
        (
            VOTES,
            torch.ones(2, 3),
            {},
            "activation must broadcast to [*batch, child] = [2, 5], but has shape [2, 3]; was it "
            "made for a layer of another size?",
        ),
        (
            VOTES,
            LENGTHS,
            {"iterations": 0},
            "iterations counts the uniform first pass, so it must be a whole number from 1, but "
            "came as 0; for no routing at all take routing='uniform', in ops uniform_routing.",
        ),
        (
            VOTES,
            LENGTHS,
            {"squash": "expo"},
            "squash='expo' is unknown; did you mean 'exp'? known: exp, hinton, none.",
        ),
        (
            VOTES,
            LENGTHS,
            {"detach": "vote"},
            "detach='vote' is unknown; did you mean 'votes'? known: iterations, none, votes.",
        ),
        (
            VOTES,
            LENGTHS,
            {"keep": "step"},
            "keep='step' is unknown; did you mean 'steps'? known: last, none, steps.",
        ),
        (
            VOTES,
            LENGTHS,
            {"scale": "samples"},
            "scale='samples' is unknown; did you mean 'sample'? known: batch, sample.",
        ),
        (
            VOTES,
            LENGTHS,
            {"scale": torch.ones(3)},
            "scale must hold one distance for each update, [iterations - 1] = [2], but has shape "
            "[3]; was it measured with other iterations, or for each sample?",
        ),
        (
            VOTES,
            LENGTHS,
            {"scale": torch.ones(2, 2)},
            "scale must hold one distance for each update, [iterations - 1] = [2], but has shape "
            "[2, 2]; was it measured with other iterations, or for each sample?",
        ),
        (
            VOTES,
            LENGTHS,
            {"scale": torch.tensor([0.5, 0.0])},
            "scale must hold distances above zero, but came as [0.5, 0.0]; were they never "
            'measured? Route with scale="batch" first and keep the mean of what comes back.',
        ),
        (
            VOTES,
            LENGTHS,
            {"scale": torch.tensor([math.nan, 0.5])},
            "scale must hold distances above zero, but came as [nan, 0.5]; were they never "
            'measured? Route with scale="batch" first and keep the mean of what comes back.',
        ),
        (
            VOTES,
            LENGTHS,
            {"p": 0.33},
            "p is the probability of a parent at half the mean distance, so with J = 3 it must lie "
            "between 0.333 and 1, but came as 0.33; below chance, far parents win.",
        ),
        (
            VOTES[:, :, :1],
            LENGTHS,
            {"p": 1.0},
            "p is the probability of a parent at half the mean distance, so with J = 1 it must lie "
            "between 0 and 1, but came as 1.0; below chance, far parents win.",
        ),
        (
            VOTES,
            LENGTHS,
            {"bias": torch.zeros(4, 4)},
            "bias must broadcast to [*batch, parent, pose] = [2, 3, 4], but has shape [4, 4]; "
            "was it made for a layer of another size?",
        ),
    ],
)
def test_errors_say_what_to_mend(votes, activation, options, message):
    with pytest.raises(TorchcapsError, match=f"^{re.escape(message)}$"):
        distance_routing(votes, activation, **options)


def test_parameters_follow_the_precision_of_the_votes():
    votes, lengths, bias = random_votes(5, 3, 4), torch.rand(5), torch.randn(3, 4)
    scale = torch.rand(2) + 0.1
    mixed = distance_routing(votes, lengths, bias=bias, scale=scale)
    assert mixed.parents.pose.dtype == mixed.scale.dtype == torch.float64
    wide = distance_routing(votes, lengths.double(), bias=bias.double(), scale=scale.double())
    assert torch.equal(mixed.parents.pose, wide.parents.pose)


def test_sizes_can_be_asked_without_computing():
    votes, lengths = torch.empty(2, 5, 3, 4, device="meta"), torch.empty(2, 5, device="meta")
    stored = torch.empty(2, device="meta")
    for scale, shape in (("sample", (2, 2)), ("batch", (2,)), (stored, (2,))):
        routed = distance_routing(votes, lengths, scale=scale, keep="last")
        assert routed.parents.pose.shape == (2, 3, 4)
        assert routed.steps[0].coupling.shape == (2, 5, 3)
        assert routed.scale.shape == shape
