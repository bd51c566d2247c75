"""The papers' protocols, as printed: every number here was typed from its paper, or its code."""

import pytest

from torchcaps.train import PROTOCOLS, make_recipe
from torchcaps.train.optimiser import rate_factor

MODEL = {"model": "capsnet"}
ADAM = {"optimiser": "adam", "momentum": 0.0, "weight_decay": 0.0}
SGD = {"optimiser": "sgd", "momentum": 0.9, "weight_decay": 5e-4, "learning_rate": 0.1}
FIXED = {"stop_at": None, "patience": None, "keep": "last"}
# Nothing is held out where nothing is chosen by it.
ALL, NINE_TENTHS = {"validation_share": 0.0}, {"validation_share": 0.1}

# [gu2021] §3.1: Adam at 0.001, batches of 128; Table 1 at 99.22 % of expanded MNIST's test images.
GU = {**ADAM, **ALL, "learning_rate": 1e-3, "schedule": "constant", "batch_size": 128}
AT_9922 = {"data": "expanded-mnist", "stop_at": 0.9922, "stop_on": "test", "stop_every": 100}
# [tsai2020] A.2: 350 epochs, batches of 128, ten times slower after 150 and after 250.
TSAI = {
    **ALL,
    **FIXED,
    "batch_size": 128,
    "epochs": 350,
    "schedule": "steps",
    "milestones": (150, 250),
    "decay": 0.1,
}
# Of its code: the channels of CIFAR-10, for both sets.
CIFAR = {
    "augment": "crop4-flip",
    "standardise": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
}
# [renzulli2025] App. B.2: Adam at 0.001, 0.99 an epoch, until 200 epochs bring nothing.
REM = {
    **ADAM,
    **NINE_TENTHS,
    "learning_rate": 1e-3,
    "batch_size": 128,
    "epochs": 1000,
    "schedule": "exponential",
    "decay": 0.99,
    "decay_every": None,
    "patience": 200,
    "keep": "best",
}
OURS = {**ADAM, **NINE_TENTHS, **FIXED, "batch_size": 64, "schedule": "cosine"}
PRINTED = {
    "em_deep_mnist": {**OURS, "epochs": 2, "loss": "auto", "learning_rate": 1e-3},
    "em_matrix_mnist": {
        **OURS,
        "epochs": 8,
        "loss": "spread",
        "spread_steps": 600,
        "learning_rate": 1e-2,
    },
    "gu": {**GU, **FIXED, "data": "expanded-mnist", "epochs": 50},
    "gu_transfer": {**GU, **AT_9922, "epochs": 50, "patience": None, "keep": "last"},
    "gu_multi_mnist": {**GU, **FIXED, "data": "multi-mnist-100", "epochs": 1},
    "hinton_em": {
        **ADAM,
        **ALL,
        **FIXED,
        "batch_size": 64,
        "epochs": 300,
        "loss": "spread",
        "spread_steps": 500_000,
        "learning_rate": 3e-3,
        "schedule": "exponential",
        "decay": 0.96,
        "decay_every": 20_000,
    },
    # [mitterreiter2023] §4: until 99.2 %.
    "mitterreiter": {
        **ADAM,
        **NINE_TENTHS,
        "learning_rate": 1e-3,
        "batch_size": 128,
        "epochs": 50,
        "stop_at": 0.992,
        "stop_on": "validation",
    },
    # [peer2022] §5: 50 epochs, batches of 256.
    "peer": {**ADAM, **ALL, **FIXED, "learning_rate": 1e-4, "batch_size": 256, "epochs": 50},
    "rem": {**REM, "stop_at": None},
    # Pruned networks are those of the last epoch; LOBSTER with the λ of public code.
    "rem_pruned": {
        **REM,
        "stop_at": None,
        "keep": "last",
        "prune": "lobster",
        "prune_to": None,
        "prune_shrink": 1e-4,
        "prune_tolerance": 0.0,
    },
    # The network that stopped, whatever its validation loss was before.
    "rem_transfer": {**REM, **AT_9922, "keep": "last"},
    "tsai_cifar": {**TSAI, **SGD, **CIFAR, "loss": "auto"},
    "tsai_cifar_dynamic": {**TSAI, **ADAM, **CIFAR, "learning_rate": 1e-3, "loss": "auto"},
    "tsai_cifar_em": {**TSAI, **ADAM, **CIFAR, "learning_rate": 1e-2, "loss": "spread"},
    "tsai_dmm": {**TSAI, **SGD, "data": "diverse-multi-mnist", "augment": None, "loss": "auto"},
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


# [gu2021] Tables 2 and 3 do not stop early; Table 1 stops at 99.22 %.
def test_the_affnist_tables_of_gu_run_in_full_but_for_the_first():
    full = make_recipe(protocol="gu", **MODEL)
    assert (full.data, full.epochs, full.stop_at) == ("expanded-mnist", 50, None)
    first = make_recipe(protocol="gu_transfer", **MODEL)
    assert (first.data, first.epochs, first.stop_at) == ("expanded-mnist", 50, 0.9922)


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
