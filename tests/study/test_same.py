"""Recipes that train the same network, however they are written."""

from types import SimpleNamespace

import pytest

from torchcaps.study.same import plain, trained_in, trains
from torchcaps.train import make_recipe


def recipe(options=(), **fields):
    given = {"model": "peer_sign_em", "data": "sign", "epochs": 2, **fields}
    return make_recipe(**given, options=dict(options))


def test_what_a_network_has_by_itself_is_not_written_out():
    assert plain(recipe({"bias": False})).options == {}
    assert plain(recipe({"bias": True})).options == {"bias": True}
    # 0 is no False.
    assert plain(recipe({"bias": 0})).options == {"bias": 0}


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (recipe({"bias": False}), True),
        (recipe(seed=3), True),
        (recipe(test_data="sign"), True),
        (recipe(test_data="toy-2d"), False),
        (recipe({"bias": True}), False),
        (recipe(epochs=3), False),
        (recipe(model="peer_sign_dynamic"), False),
    ],
)
def test_what_trains_the_same_network(other, same):
    assert (trains(recipe()) == trains(other)) is same


def test_the_name_of_a_protocol_does_not_matter():
    named = make_recipe(protocol="peer", model="peer_sign_em", data="sign")
    assert trains(named) == trains(named.model_copy(update={"protocol": None}))


def test_a_record_has_nothing_of_a_protocol_that_came_after_it():
    """Written before there was pruning."""
    now = make_recipe(model="peer_sign_em", data="sign", protocol="rem_pruned", prune=None)
    fields = now.model_dump(mode="json")
    del fields["prune"]
    assert trained_in(SimpleNamespace(recipe=fields)) == trains(now)
