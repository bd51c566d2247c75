"""Optimisers by the numbers of their first steps, rates by hand."""

from typing import get_args

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from error_text import text_of
from torchcaps.train import make_recipe
from torchcaps.train.optimiser import OPTIMISERS, lay_out, make_optimiser, rate_factor
from torchcaps.train.recipe import Optimiser


def recipe(**fields):
    return make_recipe(model="capsnet", data="mnist", **fields)


def after(steps, gradient, **fields):
    """Where a weight that starts at 1 is after steps of one gradient."""
    weight = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimiser = make_optimiser(recipe(**fields), [weight])
    for _ in range(steps):
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimiser.step()
    return weight.item()


def test_every_optimiser_of_a_recipe_is_made():
    assert set(OPTIMISERS) == set(get_args(Optimiser))
    for name, (_, kind) in OPTIMISERS.items():
        assert type(make_optimiser(recipe(optimiser=name), [nn.Parameter(torch.ones(1))])) is kind


SGD = {"optimiser": "sgd", "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.1}
QUARTER = {"learning_rate": 0.25}
DECAYING = QUARTER | {"weight_decay": 1.0}


@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
def test_a_gpu_keeps_the_count_of_updates_where_it_repeats_them(optimiser):
    """On weights that say they are there."""
    with FakeTensorMode():
        weights = [nn.Parameter(torch.empty(2, device=device)) for device in ("cpu", "cuda")]
        made = [
            make_optimiser(recipe(optimiser=optimiser), [weight]).defaults for weight in weights
        ]
    assert [each["capturable"] for each in made] == [False, True]
    assert [each["fused"] for each in made] == [True, True]


@pytest.mark.parametrize(
    ("steps", "gradient", "fields", "expected"),
    [
        # Adam starts with a step of its rate, whatever the gradient.
        (1, 3.0, QUARTER, 0.75),
        (1, -0.01, QUARTER, 1.25),
        # Decay is part of its gradient: of −0.5 and 1 × weight 1, so that the sign turns.
        (1, -0.5, DECAYING, 0.75),
        # Of AdamW it is not: 1 × (1 − 0.25 × 1), then a step of 0.25 against the gradient's sign.
        (1, -0.5, DECAYING | {"optimiser": "adamw"}, 1.0),
        # SGD gathers both. Gradient 2 + 0.1 × 1 = 2.1; then velocity 0.9 × 2.1 + 2 + 0.079.
        (1, 2.0, SGD, 0.79),
        (2, 2.0, SGD, 0.79 - 0.1 * (1.89 + 2.079)),
    ],
)
def test_the_first_steps_by_hand(steps, gradient, fields, expected):
    assert after(steps, gradient, **fields) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("fields", "steps", "expected"),
    [
        ({}, (0, 9, 10, 1000), [1, 1, 1, 1]),
        # From one through a half to nearly nothing.
        ({"schedule": "cosine", "epochs": 4}, (0, 20, 39, 40), [1, 0.5, 0.00154133, 0]),
        (
            {"schedule": "steps", "milestones": (2, 5), "decay": 0.1},
            (19, 20, 49, 50),
            [1, 0.1, 0.1, 0.01],
        ),
    ],
    ids=["constant", "cosine", "steps"],
)
def test_the_rate_by_its_schedule(fields, steps, expected):
    chosen = recipe(**fields)
    assert [rate_factor(chosen, step, 10) for step in steps] == pytest.approx(expected, abs=1e-8)


def gone_on(**changed):
    """An optimiser of one weight of 2 × 3 that did a step and took a state with other tensors."""
    weight = nn.Parameter(torch.ones(2, 3))
    optimiser = make_optimiser(recipe(), [weight])
    weight.grad = torch.ones(2, 3)
    optimiser.step()
    state = optimiser.state_dict()
    state["state"][0].update(changed)
    optimiser.load_state_dict(state)
    return optimiser, weight


@pytest.mark.parametrize("name", ["exp_avg", "exp_avg_sq", "step"])
@pytest.mark.parametrize("size", [(1,), (3, 2), (4, 6)])
def test_what_is_kept_in_other_sizes_is_refused(name, size):
    """A fused step does not look, and writes over memory that is not its own."""
    optimiser, _ = gone_on(**{name: torch.zeros(size)})
    here = () if name == "step" else (2, 3)
    assert text_of(lambda: lay_out(optimiser)) == (
        f"the state of this run keeps {name!r} of size {size} where its network has {here}; it is "
        f"damaged, or of another network: remove state.ckpt, and the run begins anew."
    )


def test_one_number_in_the_guise_of_many_becomes_as_many():
    guise, plain = (
        gone_on(exp_avg=value) for value in (torch.zeros(1, 1).expand(2, 3), torch.zeros(2, 3))
    )
    for optimiser, weight in (guise, plain):
        lay_out(optimiser)
        assert optimiser.state[weight]["exp_avg"].stride() == weight.stride()
        optimiser.step()
    assert torch.equal(guise[1], plain[1])
