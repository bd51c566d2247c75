"""The papers' protocols, as protocols.toml has them: printed, or in the papers' code."""

import pytest

from tables import beside
from torchcaps.train import PROTOCOLS, make_recipe
from torchcaps.train.optimiser import rate_factor

MODEL = {"model": "capsnet"}


def as_held(value):
    """As a recipe holds what TOML says."""
    if isinstance(value, list):
        return tuple(map(as_held, value))
    return None if value == "none" else value


PRINTED = {
    name: {field: as_held(value) for field, value in told["printed"].items()}
    for name, told in beside(__file__, "protocols.toml").items()
}


def test_no_protocol_is_left_out():
    assert set(PRINTED) == set(PROTOCOLS)


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_every_protocol_says_what_is_printed(name):
    data = {} if "data" in PRINTED[name] else {"data": "mnist"}
    recipe = make_recipe(protocol=name, **data, **MODEL)
    assert {field: getattr(recipe, field) for field in PRINTED[name]} == PRINTED[name]
    assert recipe.protocol == name
    assert recipe.departures() == tuple(PROTOCOLS[name].departs.values())


def test_what_is_given_wins_over_the_protocol_and_departs_from_it():
    recipe = make_recipe(protocol="peer", data="mnist", epochs=2, **MODEL)
    assert (recipe.epochs, recipe.batch_size, recipe.learning_rate) == (2, 256, 1e-4)
    assert recipe.departures() == ("epochs: 2, where the protocol peer has 50",)
    again = make_recipe(**recipe.model_dump(mode="json"))
    assert (again, again.departures()) == (recipe, recipe.departures())
    assert make_recipe(data="mnist", **MODEL).departures() == ()


def test_another_value_takes_back_what_a_protocol_says_of_itself():
    changed = {"keep": "best", "validation_share": 0.1}
    recipe = make_recipe(protocol="tsai_cifar", data="cifar10", **changed, **MODEL)
    assert recipe.departures() == (
        "keep: 'best', where the protocol tsai_cifar has 'last'",
        "validation_share: 0.1, where the protocol tsai_cifar has 0.0",
    )
    unstopped = make_recipe(protocol="mitterreiter", data="mnist", stop_at=None, **MODEL)
    assert unstopped.departures() == ("stop_at: None, where the protocol mitterreiter has 0.992",)


def test_a_protocol_says_where_it_leaves_its_paper():
    recipe = make_recipe(protocol="tsai_cifar", data="cifar10", **MODEL)
    assert recipe.departures() == (
        "the weights of the last epoch, where the paper takes those that are best on test images",
    )


# [tsai2020] A.2: 350 epochs, ten times slower after 150 and after 250.
@pytest.mark.parametrize(("epoch", "rate"), [(0, 0.1), (149, 0.1), (150, 0.01), (250, 0.001)])
def test_tsai_lowers_its_rate_twice(epoch, rate):
    recipe = make_recipe(protocol="tsai_cifar", data="cifar10", **MODEL)
    steps = 391
    for step in (epoch * steps, epoch * steps + steps - 1):
        assert recipe.learning_rate * rate_factor(recipe, step, steps) == pytest.approx(rate)


def test_rem_decays_by_a_hundredth_an_epoch():
    recipe = make_recipe(protocol="rem", data="mnist", **MODEL)
    factors = [rate_factor(recipe, epoch * 10, 10) for epoch in (0, 1, 2)]
    assert factors == pytest.approx([1, 0.99, 0.9801])


def test_em_decays_every_20000_updates_whatever_an_epoch_is():
    recipe = make_recipe(protocol="hinton_em", data="smallnorb", **MODEL)
    factors = [rate_factor(recipe, step, 7) for step in (19_999, 20_000, 40_000)]
    assert factors == pytest.approx([1, 0.96, 0.96**2])
