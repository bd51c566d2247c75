"""Compactness by made records: the order of Table 5, and one factor that is against it."""

import pytest

from made_records import record
from torchcaps_claims import find_claim, plan_of
from torchcaps_claims.judges import judge_statement
from torchcaps_claims.judges.gu import FACTORS

NOISE = (-0.002, -0.001, 0.0, 0.001, 0.002)
ORDER = {"gu_convnet_r": 0.0, "gu_convnet_cr": 0.02, "gu_convnet_cr_sf": 0.06, "gu_capsnet": 0.04}


def records(change=None, *, data="mnist", reduced=None, **options):
    """Each network has the same score for all factors, but where `change` says another."""
    made = []
    for model, score in ORDER.items():
        values = {
            f"compactness.{factor}": [
                (change or {}).get((model, factor), score) + noise for noise in NOISE
            ]
            for factor in FACTORS
        }
        made.append(record(model, data, values=values, reduced=reduced, **options))
    return made


def word(name, given):
    found = judge_statement(find_claim(f"gu2021-q-{name}"), given)
    return None if found is None else found.word


def test_the_order_of_table_5_holds():
    name = "dr-reduces-compactness"
    assert word(name, records()) == "holds"
    assert word(name, records(reduced="less", width=64)) == "holds"
    # A narrower network under the full protocol is another one.
    assert word(name, records(width=64)) is None


def test_a_network_whose_units_are_ours_decides_nothing_and_leans_nowhere():
    """R scores a thousand times what is printed of it; CR-SF and CR are the paper's."""
    name = "gu2021-q-cr-and-squash-semantic"
    found = judge_statement(find_claim(name), records({("gu_convnet_r", "scale"): 0.4}))
    assert (found.word, found.leaning("narrow").word) == ("undecided", "undecided")
    assert found.open_because == "the 16 units of R are ours: the paper does not say what it is"


def test_an_order_that_the_text_at_hand_does_not_state_is_not_judged():
    assert plan_of(find_claim("gu2021-q-compactness-fmnist")).status == "not testable"


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("cr-and-squash-semantic", {("gu_convnet_cr", "scale"): 0.1}, "fails"),
        ("cr-and-squash-semantic", {("gu_convnet_r", "scale"): 0.02}, "undecided"),
        ("dr-reduces-compactness", {("gu_capsnet", "shear-y"): 0.1}, "fails"),
        ("dr-reduces-compactness", {("gu_convnet_r", "scale"): 0.1}, "holds"),
    ],
)
def test_one_factor_is_enough_against_it(name, change, expected):
    assert word(name, records(change)) == expected
