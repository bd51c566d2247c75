"""Rows of `study status`: each has a name of its own, which says what is its own."""

import dataclasses

import pytest

from error_text import text_of
from torchcaps.study.look import Look
from torchcaps.study.system import System, only_those
from torchcaps.train import make_recipe
from torchcaps_claims import claims, study_of, study_of_claims
from torchcaps_claims.names import told_apart

OWN, OTHER = Look("accuracy", "sign"), Look("accuracy", "sign", "train")


def system(label="net on sign", *, looks=(OWN,), reduced=None, **fields):
    recipe = make_recipe(model="peer_sign_em", data="sign", **fields)
    return System(label, recipe, (0,), looks, reduced=reduced)


def labels(*systems):
    return [each.label for each in told_apart(systems)]


@pytest.mark.parametrize("reduced", [False, True])
def test_no_two_rows_of_the_whole_list_have_one_name(reduced):
    rows = [each.label for each in study_of_claims(claims(), "all", reduced=reduced).systems]
    assert len(rows) > 400
    assert len(set(rows)) == len(rows)


def test_what_differs_is_said_and_nothing_else():
    assert labels(system(), system("other on sign", epochs=2)) == ["net on sign", "other on sign"]
    assert labels(system(epochs=2), system(epochs=3), system("other")) == [
        "net on sign, epochs=2",
        "net on sign, epochs=3",
        "other",
    ]


def test_pruning_is_said_first_and_the_rest_where_it_is_needed():
    found = labels(
        system(epochs=7),
        system(prune="magnitude", prune_to=0.5, epochs=7),
        system(prune="magnitude", prune_to=1 / 3, epochs=8),
    )
    assert found == [
        "net on sign, prune=none",
        "net on sign, prune=magnitude, prune_to=0.5",
        "net on sign, prune=magnitude, prune_to=0.3333",
    ]


def test_options_that_a_label_left_out_are_said():
    assert labels(system(options={"bias": True}), system()) == [
        "net on sign, bias=True",
        "net on sign, bias=none",
    ]


def test_one_network_that_is_seen_in_two_ways():
    assert labels(system(), system(looks=(OTHER,))) == [
        "net on sign, seen on sign/test",
        "net on sign, seen on sign/train",
    ]
    assert labels(system(), system(reduced="one epoch")) == [
        "net on sign, in full",
        "net on sign, one epoch",
    ]


def test_order_and_everything_but_labels_stay():
    given = [system(epochs=2), system("b"), system(epochs=3)]
    found = told_apart(given)
    assert [dataclasses.replace(each, label="") for each in found] == [
        dataclasses.replace(each, label="") for each in given
    ]


def test_only_those_with_every_text_in_their_names():
    study = study_of("renzulli2025", 9)
    chosen = only_those(study, ["rem_dr ", "prune=lobster"])
    (one,) = chosen.systems
    assert (one.recipe.model, one.recipe.prune) == ("rem_dr", "lobster")
    assert chosen.name == study.name
    assert text_of(lambda: only_those(study, ["rem_dr", "prune=lobsters"])).startswith(
        "no system of renzulli2025/table9 has 'rem_dr' and 'prune=lobsters' in its name; "
        "`torchcaps study status` prints the names: rem_dr "
    )
