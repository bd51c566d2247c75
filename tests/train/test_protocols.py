"""The papers' protocols, as printed."""

import pytest

from torchcaps.train import PROTOCOLS, make_recipe
from torchcaps.train.optimiser import rate_factor

MODEL = {"model": "capsnet"}


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_every_protocol_makes_a_recipe(name):
    recipe = make_recipe(protocol=name, **{"data": "mnist", **PROTOCOLS[name], **MODEL})
    for field, value in PROTOCOLS[name].items():
        assert getattr(recipe, field) == value


def test_what_is_given_wins_over_the_protocol():
    recipe = make_recipe(protocol="peer", data="mnist", epochs=2, **MODEL)
    assert (recipe.epochs, recipe.batch_size, recipe.learning_rate) == (2, 256, 1e-4)


# [gu2021] Tables 2 and 3 do not stop early; Table 1 stops at 99.22 %.
def test_the_affnist_tables_of_gu_run_in_full_but_for_the_first():
    full = make_recipe(protocol="gu", **MODEL)
    assert (full.data, full.epochs, full.stop_at) == ("expanded-mnist", 50, None)
    first = make_recipe(protocol="gu_transfer", **MODEL)
    assert (first.data, first.epochs, first.stop_at) == ("expanded-mnist", 50, 0.9922)


def test_a_protocol_may_bring_its_data():
    assert make_recipe(protocol="tsai_dmm", **MODEL).data == "diverse-multi-mnist"


# [tsai2020] A.2: 350 epochs, ten times slower after 150 and after 250.
@pytest.mark.parametrize(("epoch", "rate"), [(0, 0.1), (149, 0.1), (150, 0.01), (250, 0.001)])
def test_tsai_lowers_its_rate_twice(epoch, rate):
    recipe = make_recipe(protocol="tsai_cifar", data="cifar10", **MODEL)
    assert (recipe.epochs, recipe.optimiser) == (350, "sgd")
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


def test_the_courses_of_em_networks():
    deep = make_recipe(protocol="em_deep_mnist", data="mnist", **MODEL)
    assert (deep.loss, deep.batch_size, deep.learning_rate, deep.epochs) == ("auto", 64, 1e-3, 2)
    matrix = make_recipe(protocol="em_matrix_mnist", data="mnist", **MODEL)
    assert (matrix.loss, matrix.spread_steps, matrix.learning_rate) == ("spread", 600, 1e-2)
    assert deep.schedule == matrix.schedule == "cosine"


def test_who_stops_on_test_images_says_so():
    on_test = {name for name, fields in PROTOCOLS.items() if fields.get("stop_on") == "test"}
    assert on_test == {"gu_transfer", "rem_transfer"}
