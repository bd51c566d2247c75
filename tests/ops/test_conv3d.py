"""3-D convolutional routing: both squashes on paper, its laws, the loop twin, error texts."""

import re

import pytest
import torch

from reference.conv3d import conv3d_routing as twin
from torchcaps.errors import TorchcapsError
from torchcaps.ops import conv3d_routing, dynamic_routing

GRID = (2, 3, 2)  # not square, more than one type
SQUASHES = ["map", "pose"]


def random_votes(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


def types_of(pose, grid=GRID):
    """Poses [j, d] as [type, h * w * d]."""
    return pose.reshape(*grid, -1).movedim(2, 0).flatten(1)


# One child says 3 to the left parent and 4 to the right one.
# map, t = 1: s = (1.5, 2), ‖s‖ = 2.5, v = 2.5/7.25 · s = (0.5172414, 0.6896552),
#             b = (1.5517241, 2.7586207)
#      t = 2: c_left = 1/(1 + exp(1.2068966)) = 0.2302506, s = (0.6907519, 3.0789975), ‖s‖² = 9.9573
#             v = (0.1989245, 0.8866974)
# pose, t = 1: v = (2.25/3.25, 4/5) = (0.6923077, 0.8), b = (2.0769231, 3.2)
#       t = 2: c_left = 1/(1 + exp(1.1230769)) = 0.2454410, s = (0.7363230, 3.0182360)
#              v = (0.3515637, 0.9010856)
@pytest.mark.parametrize(
    ("squash_over", "first", "left", "second"),
    [
        ("map", [0.5172414, 0.6896552], 0.2302506, [0.1989245, 0.8866974]),
        ("pose", [0.6923077, 0.8], 0.2454410, [0.3515637, 0.9010856]),
    ],
)
def test_two_iterations_on_paper(squash_over, first, left, second):
    votes = torch.tensor([[[3.0], [4.0]]], dtype=torch.float64)
    routed = conv3d_routing(
        votes, parent_grid=(1, 2, 1), iterations=2, squash_over=squash_over, keep="steps"
    )
    assert routed.steps[0].coupling.tolist() == [[0.5, 0.5]]
    assert routed.steps[0].parents.pose.flatten().tolist() == pytest.approx(first, abs=1e-7)
    assert routed.steps[1].coupling.tolist() == [pytest.approx([left, 1 - left], abs=1e-7)]
    assert routed.parents.pose.flatten().tolist() == pytest.approx(second, abs=1e-7)


def test_a_bias_belongs_to_a_type():
    # Zero votes, two positions. Type 0 has 3 at each, ‖s‖² = 18, v = √18/19 · 3 = 0.6698906;
    # type 1 has 1 at each, ‖s‖² = 2, v = √2/3 = 0.4714045.
    votes = torch.zeros(2, 4, 1, dtype=torch.float64)
    bias = torch.tensor([[3.0], [1.0]], dtype=torch.float64)
    for iterations in (1, 3):
        for grid in ((1, 2, 2), (2, 1, 2)):
            pose = conv3d_routing(votes, parent_grid=grid, iterations=iterations, bias=bias)[0].pose
            assert pose.flatten().tolist() == pytest.approx([0.6698906, 0.4714045] * 2, abs=1e-7)


def test_a_child_splits_itself_among_all_positions_and_types():
    steps = conv3d_routing(random_votes(2, 5, 12, 3), parent_grid=GRID, keep="steps").steps
    assert len(steps) == 3
    for step in steps:
        total = step.coupling.sum(-1)
        torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-14)
    assert steps[-1].coupling.std() > 1e-3


@pytest.mark.parametrize("squash_over", SQUASHES)
def test_logits_are_all_agreements(squash_over):
    votes = random_votes(5, 12, 3)
    steps = conv3d_routing(
        votes, parent_grid=GRID, iterations=4, squash_over=squash_over, keep="steps"
    ).steps
    agreed = sum((votes * step.parents.pose).sum(-1) for step in steps[:-1])
    torch.testing.assert_close(steps[-1].coupling, agreed.softmax(-1), rtol=0, atol=1e-12)


def test_a_map_is_shorter_than_one_and_keeps_its_direction():
    votes, bias = 5 * random_votes(5, 12, 3), random_votes(2, 3)
    parents, (step,), _ = conv3d_routing(votes, parent_grid=GRID, bias=bias, keep="last")
    mixed = torch.einsum("ij,ijd->jd", step.coupling, votes) + bias.repeat(6, 1)
    v, s = types_of(parents.pose), types_of(mixed)
    square = s.square().sum(-1)
    torch.testing.assert_close(v.norm(dim=-1), square / (1 + square), rtol=0, atol=1e-7)
    cosine = torch.nn.functional.cosine_similarity(v, s, dim=-1)
    torch.testing.assert_close(cosine, torch.ones_like(cosine), rtol=0, atol=1e-12)


def test_types_do_not_share_a_norm_and_positions_do():
    votes = random_votes(5, 12, 3)
    louder = votes.clone()
    louder[:, 0] *= 7  # row 0, column 0, type 0
    before, after = (
        types_of(conv3d_routing(v, parent_grid=GRID, iterations=1).parents.pose)
        for v in (votes, louder)
    )
    assert torch.equal(before[1], after[1])
    assert (before[0] - after[0]).abs().min() > 1e-4


@pytest.mark.parametrize("grid", [GRID, (1, 1, 12), (12, 1, 1)], ids=str)
def test_one_norm_a_parent_is_dynamic_routing_with_a_bias_a_type(grid):
    votes, bias = random_votes(2, 5, 12, 3), random_votes(grid[2], 3)
    ours = conv3d_routing(votes, parent_grid=grid, bias=bias, squash_over="pose", keep="last")
    theirs = dynamic_routing(votes, bias=bias.repeat(12 // grid[2], 1), keep="last")
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-14)


def test_on_one_position_both_squashes_are_one():
    votes = random_votes(2, 5, 4, 3)
    a, b = (conv3d_routing(votes, parent_grid=(1, 1, 4), squash_over=over) for over in SQUASHES)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-14)


def test_positions_change_places_freely():
    votes, bias, order = random_votes(5, 12, 3), random_votes(2, 3), torch.randperm(6)
    moved = votes.unflatten(1, (6, 2))[:, order].flatten(1, 2)
    before, after = (
        conv3d_routing(v, parent_grid=GRID, bias=bias).parents.pose.unflatten(0, (6, 2))
        for v in (votes, moved)
    )
    torch.testing.assert_close(before[order], after, rtol=0, atol=1e-12)


def test_without_a_bias_minus_x_gives_minus_y():
    votes = random_votes(5, 12, 3)
    there, back = (conv3d_routing(v, parent_grid=GRID).parents.pose for v in (votes, -votes))
    assert torch.equal(there, -back)


# votes and grid: no batch axis, one child, one parent, both, a batch of one, two batch axes
SHAPES = [
    ((3, 12, 2), GRID),
    ((1, 6, 2), (3, 1, 2)),
    ((4, 1, 3), (1, 1, 1)),
    ((1, 1, 1), (1, 1, 1)),
    ((1, 3, 5, 2), (5, 1, 1)),
    ((2, 1, 2, 4, 3), (1, 2, 2)),
]


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("squash_over", SQUASHES)
def test_parity_with_the_twin(squash_over, iterations, with_bias, device, dtype, tolerance):
    for shape, grid in SHAPES:
        theirs = {"votes": random_votes(*shape).requires_grad_()}
        if with_bias:
            theirs["bias"] = random_votes(grid[2], shape[-1]).requires_grad_()
        ours = {name: x.detach().to(device, dtype).requires_grad_() for name, x in theirs.items()}
        options = {"parent_grid": grid, "iterations": iterations, "squash_over": squash_over}
        parents, steps, _ = conv3d_routing(**ours, **options, keep="steps")
        expected, couplings = twin(**theirs, **options)
        assert len(steps) == len(couplings) == iterations
        result = torch.cat([x.flatten() for x in (parents.pose, *(s.coupling for s in steps))])
        reference = torch.cat([x.flatten() for x in (expected, *couplings)])
        torch.testing.assert_close(result.cpu().double(), reference, rtol=0, atol=tolerance)
        weight = torch.randn_like(reference)
        gradients = torch.autograd.grad((result * weight.to(result)).sum(), ours.values())
        expected_gradients = torch.autograd.grad((reference * weight).sum(), theirs.values())
        for name, a, b in zip(ours, gradients, expected_gradients, strict=True):
            error = (a.cpu().double() - b).abs().max().item()
            assert error <= tolerance, f"gradient of {name} at {shape}"


@pytest.mark.parametrize("detach", ["none", "votes", "states", "coupling"])
@pytest.mark.parametrize("squash_over", SQUASHES)
def test_gradients_stop_where_they_stop_in_the_twin(squash_over, detach):
    votes = random_votes(2, 3, 12, 2).requires_grad_()
    bias = random_votes(2, 2).requires_grad_()
    options = {"parent_grid": GRID, "bias": bias, "squash_over": squash_over, "detach": detach}
    gradients, values = [], []
    for pose in (conv3d_routing(votes, **options).parents.pose, twin(votes, **options)[0]):
        values.append(pose)
        gradients.append(torch.autograd.grad(pose.square().sum(), (votes, bias)))
    torch.testing.assert_close(*values, rtol=0, atol=1e-12)
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)
    whole = conv3d_routing(votes, **options | {"detach": "none"}).parents.pose
    of_whole, _ = torch.autograd.grad(whole.square().sum(), (votes, bias))
    assert torch.equal(gradients[0][0], of_whole) == (detach == "none")


def test_the_norm_of_the_map_and_three_iterations_are_the_default():
    votes = random_votes(5, 12, 3)
    explicit = conv3d_routing(votes, parent_grid=GRID, iterations=3, squash_over="map")
    assert torch.equal(conv3d_routing(votes, parent_grid=GRID).parents.pose, explicit.parents.pose)


def test_activation_is_the_length_of_the_pose():
    for keep in ("none", "last"):
        parents = conv3d_routing(random_votes(2, 5, 12, 3), parent_grid=GRID, keep=keep).parents
        torch.testing.assert_close(parents.activation, parents.pose.norm(dim=-1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_computes_in_float32(dtype):
    votes = random_votes(2, 40, 12, 3).to(dtype)
    half, wide = (conv3d_routing(v, parent_grid=GRID, keep="last") for v in (votes, votes.float()))
    assert torch.equal(half.parents.pose, wide.parents.pose.to(dtype))
    assert torch.equal(half.steps[0].coupling, wide.steps[0].coupling.to(dtype))


def test_autocast_changes_nothing():
    votes, bias = random_votes(2, 5, 12, 3).float(), random_votes(2, 3).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = conv3d_routing(votes, parent_grid=GRID, bias=bias).parents.pose
    assert torch.equal(inside, conv3d_routing(votes, parent_grid=GRID, bias=bias).parents.pose)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_sizes_of_an_empty_batch(device):
    votes = torch.zeros(0, 5, 12, 3, device=device)
    routed = conv3d_routing(votes, parent_grid=GRID, keep="last")
    assert routed.parents.pose.shape == (0, 12, 3)
    assert routed.parents.activation.shape == (0, 12)
    assert routed.steps[0].coupling.shape == (0, 5, 12)


VOTES = torch.zeros(2, 5, 12, 3)
FITS = {"parent_grid": GRID}


@pytest.mark.parametrize(
    ("votes", "options", "message"),
    [
        *(
            (
                VOTES,
                {"parent_grid": grid},
                "parent_grid must be (height, width, types) with a product of 12, the number of "
                f"parents in votes [2, 5, 12, 3], but came as {grid}; is it that of the children, "
                "or are the votes ordered otherwise?",
            )
            for grid in [(2, 3, 3), (3, 4), (-2, -3, 2), (2, 3, 2, 1)]
        ),
        (
            VOTES[0, 0],
            FITS,
            "votes must have the axes [*batch, child, parent, pose], at least three, but came with "
            "shape [12, 3]; one child or one parent still needs its axis: use unsqueeze.",
        ),
        (
            VOTES,
            FITS | {"iterations": 0},
            "iterations counts the uniform first pass, so it must be a whole number from 1, but "
            "came as 0; for no routing at all take routing='uniform', in ops uniform_routing.",
        ),
        (
            VOTES,
            FITS | {"squash_over": "maps"},
            "squash_over='maps' is unknown; did you mean 'map'? known: map, pose.",
        ),
        (
            VOTES,
            FITS | {"keep": "step"},
            "keep='step' is unknown; did you mean 'steps'? known: last, none, steps.",
        ),
        (
            VOTES,
            FITS | {"bias": torch.zeros(12, 3)},
            "bias must broadcast to [type, pose] = [2, 3], but has shape [12, 3]; was it made for "
            "a layer of another size?",
        ),
    ],
)
def test_errors_say_what_to_mend(votes, options, message):
    with pytest.raises(TorchcapsError, match=f"^{re.escape(message)}$"):
        conv3d_routing(votes, **options)
