"""Every way of choosing, against hand-worked cases and brute force."""

import pytest
import torch

from ten import Ten
from torchcaps import create_model
from torchcaps.prune import (
    Lobster,
    Magnitude,
    MaskAtTheEnd,
    RandomMasks,
    Snip,
    lamp,
    ramp,
    sparsity,
)


def nothing():
    raise AssertionError("it has no use for it")


def test_a_ramp_is_cubic():
    assert ramp(0.8, epochs=1) == (0.8,)
    assert ramp(0.8, epochs=2) == pytest.approx((0.7, 0.8))
    # 1 - (3/4)^3, 1 - (2/4)^3, 1 - (1/4)^3.
    assert ramp(0.64, epochs=4) == pytest.approx((0.37, 0.56, 0.63, 0.64))
    assert ramp(0.9, epochs=7)[-1] == 0.9


def test_magnitude_prunes_the_smallest_to_each_target_and_stays_there():
    model = Ten()
    pruner = Magnitude(model, targets=(0.2, 0.5))
    pruner.before_training(nothing)
    pruner.after_backward(0)
    pruner.after_step()
    assert model.left() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    pruner.after_epoch(0, nothing)
    assert model.left() == [3, 4, 5, 6, 7, 8, 9, 10]
    # Weights that an optimiser moved, pruned ones too.
    with torch.no_grad():
        model.two.weight[0] = 50
        model.one.weight[1] = 0.5
    pruner.after_step()
    for epoch in (1, 2, 9):
        pruner.after_epoch(epoch, nothing)
        # The weight of 10 is 0.5 now, the one of 2 is pruned whatever it is.
        assert model.left() == [5, 6, 7, 8, 9]


def test_in_the_scope_of_a_layer_each_is_pruned_to_the_same_share():
    model = Ten()
    MaskAtTheEnd(model, to=0.5, scope="layer").at_the_end()
    # Of 3, 10, 1, 7 the smaller two, of 2, 9, 5, 8, 4, 6 the smaller three.
    assert model.left() == [6, 7, 8, 9, 10]
    assert sparsity(model).layers == {"one.weight": 0.5, "two.weight": 0.5}
    with torch.no_grad():
        model.one.weight.mul_(0.01)
    pruner = Magnitude(model, targets=(0.75,), scope="layer")
    pruner.after_epoch(0, nothing)
    assert int((model.one.weight != 0).sum()) == 1


def test_snip_prunes_where_the_product_of_weight_and_gradient_is_small():
    model = Ten()
    pruner = Snip(model, to=0.3)
    # Large where weights are small: 11 - |w|, with either sign.
    gradients = {
        name: (11 - weight.detach().abs()) * (-1) ** k
        for k, (name, weight) in enumerate(pruner.masks.weights.items())
    }
    pruner.before_training(lambda: gradients)
    # w (11 - w) is 10, 18, 24, 28, 30 on both sides: 1 and 10 go, then the first of 2 and 9.
    assert model.left() == [3, 4, 5, 6, 7, 8, 9]
    pruner.after_epoch(0, nothing)
    pruner.at_the_end()
    assert len(model.left()) == 7


def test_random_masks_are_drawn_before_training_by_the_seed_alone():
    def left(seed):
        model = Ten()
        pruner = RandomMasks(model, to=0.3, generator=torch.Generator().manual_seed(seed))
        pruner.before_training(nothing)
        return tuple(model.left())

    assert len(left(1)) == 7
    assert left(1) == left(1)
    assert len({left(seed) for seed in range(20)}) > 5
    # No size is favoured: of 200 draws each weight is kept 140 times, give or take 6.
    drawn = [left(seed) for seed in range(200)]
    counts = [sum(size in each for each in drawn) for size in range(1, 11)]
    assert min(counts) > 110
    assert max(counts) < 170


def test_masks_at_the_end_are_made_at_the_end():
    model = Ten()
    pruner = MaskAtTheEnd(model, to=0.7)
    pruner.before_training(nothing)
    pruner.after_epoch(5, nothing)
    assert len(model.left()) == 10
    pruner.at_the_end()
    assert model.left() == [8, 9, 10]


def test_lobster_shrinks_what_the_loss_does_not_feel():
    model = Ten()
    pruner = Lobster(model, shrink=0.1)
    model.one.weight.grad = torch.tensor([0.0, -0.5, 1.0, -3.0]).view(4, 1, 1, 1)
    pruner.after_backward(1)
    # λ = 0.1 · 0.99², times 1, 1/2, 0, 0; without a gradient nothing is known.
    factor = 0.1 * 0.99**2
    expected = [3 * (1 - factor), -10 * (1 - factor / 2), 1, 7]
    assert model.one.weight.flatten().tolist() == pytest.approx(expected)
    assert model.two.weight.flatten().tolist() == [-2, 9, 5, -8, 4, 6]


def loss_of(model, step):
    """Rises by a step where more than `step` of the ten are pruned."""
    return lambda: 1.0 + (len(model.left()) < 10 - step)


@pytest.mark.parametrize("step", range(9))
def test_lobster_finds_the_largest_threshold_that_costs_nothing(step):
    model = Ten()
    pruner = Lobster(model)
    pruner.after_epoch(0, loss_of(model, step))
    assert model.left() == list(range(step + 1, 11))
    assert pruner.masks.count == step


def test_lobster_goes_on_from_what_is_pruned():
    model = Ten()
    pruner = Lobster(model)
    for step in (3, 3, 6):
        pruner.after_epoch(0, loss_of(model, step))
    assert model.left() == [7, 8, 9, 10]


def test_lobster_takes_a_tolerance_and_a_sparsity_not_to_pass():
    model = Ten()
    # Each weight costs a tenth of the loss; a rise by 35 % allows three.
    pruner = Lobster(model, tolerance=0.35)
    pruner.after_epoch(0, lambda: 1 + 0.1 * (10 - len(model.left())))
    assert model.left() == [4, 5, 6, 7, 8, 9, 10]
    model = Ten()
    Lobster(model, most=0.6).after_epoch(0, lambda: 1.0)
    assert model.left() == [7, 8, 9, 10]


def test_lobster_with_a_ceiling_of_none_shrinks_and_prunes_nothing():
    model, looks = Ten(), []
    pruner = Lobster(model, shrink=0.1, most=0)
    before = {name: weight.detach().clone() for name, weight in pruner.masks.weights.items()}
    for weight in pruner.masks.weights.values():
        weight.grad = torch.full_like(weight, 0.25)
    pruner.after_backward(0)
    for name, weight in pruner.masks.weights.items():
        # By 1 − |∂L/∂w| of 0.1 · 0.99.
        assert torch.allclose(weight, before[name] * (1 - 0.75 * 0.099), rtol=1e-6, atol=0)
    pruner.after_epoch(0, lambda: looks.append(1) or 0.0)
    assert pruner.masks.count == 0
    assert len(model.left()) == 10
    assert not looks


def test_lobster_never_empties_a_layer():
    model = Ten()
    with torch.no_grad():
        model.one.weight.mul_(0.01)
    Lobster(model).after_epoch(0, lambda: 1.0)
    assert int((model.one.weight != 0).sum()) == 1


def test_lobster_looks_some_ten_times():
    model = create_model("rem_eff_mnist", image=(1, 20, 20))
    looks = []
    Lobster(model).after_epoch(0, lambda: looks.append(1) or float(sparsity(model).share > 0.371))
    assert len(looks) <= 12
    assert sparsity(model).share == pytest.approx(0.371, abs=0.001)


def test_lamp_is_a_square_over_what_would_be_left():
    # 1 / (1 + 9 + 49 + 100), 9 / (9 + 49 + 100), and so on.
    found = lamp(torch.tensor([[3.0, -10], [1, 7]]))
    hand = torch.tensor([[9 / 158, 1], [1 / 159, 49 / 149]], dtype=torch.float64)
    assert torch.allclose(found, hand, rtol=1e-12, atol=0)
    assert lamp(torch.zeros(2, 3)).tolist() == [[0.0] * 3] * 2


def test_lamp_agrees_with_brute_force_also_where_weights_are_zero():
    weight = torch.randn(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weight[::7] = 0
    for w, score in zip(weight, lamp(weight), strict=True):
        left = sum(float(v**2) for v in weight if v.abs() >= w.abs())
        assert float(score) == pytest.approx(float(w**2) / left, rel=1e-12)


@pytest.mark.parametrize("factor", [1.0, 1e-4, 1e4])
def test_lamp_does_not_feel_the_scale_of_a_layer_and_leaves_something_of_each(factor):
    # Of one: 1/159, 9/158, 49/149, 1. Of two: 4/226, 16/222, 25/206, 36/181, 64/145, 1.
    model = Ten()
    with torch.no_grad():
        model.two.weight.mul_(factor)
    pruner = Magnitude(model, targets=(0.4, 0.7, 0.8), scope="lamp")
    left = []
    for epoch in range(3):
        pruner.after_epoch(epoch, nothing)
        left.append([int((w != 0).sum()) for w in (model.one.weight, model.two.weight)])
    assert left == [[2, 4], [1, 2], [1, 1]]


def test_a_layer_gets_its_share_though_another_has_lost_more_than_that():
    """Where all together had lost as many already, nothing happened."""
    model = Ten()
    with torch.no_grad():
        model.one.weight.mul_(0.01)
    MaskAtTheEnd(model, to=0.3).at_the_end()
    assert sparsity(model).layers == {"one.weight": 0.75, "two.weight": 0}
    MaskAtTheEnd(model, to=0.3, scope="layer").at_the_end()
    # Of 2, 9, 5, 8, 4, 6 the smaller two; what is gone stays so.
    assert sparsity(model).layers == {"one.weight": 0.75, "two.weight": 2 / 6}
    assert model.left()[1:] == [5, 6, 8, 9]


def test_all_pruners_reach_the_same_sparsity():
    def made(model):
        generator = torch.Generator().manual_seed(0)
        return (
            Magnitude(model, targets=(0.5,)),
            Snip(model, to=0.5),
            RandomMasks(model, to=0.5, generator=generator),
            MaskAtTheEnd(model, to=0.5),
            Lobster(model, most=0.5),
        )

    shares = []
    for k in range(5):
        model = create_model("rem_eff_mnist", image=(1, 20, 20))
        pruner = made(model)[k]
        ones = {name: torch.ones_like(w) for name, w in pruner.masks.weights.items()}
        pruner.before_training(lambda ones=ones: ones)
        pruner.after_epoch(0, lambda: 0.0)
        pruner.at_the_end()
        shares.append(sparsity(model).share)
    assert shares == pytest.approx([0.5] * 5, abs=1e-4)
    assert len(set(shares)) == 1
