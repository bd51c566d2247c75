"""Inputs that are near opposites by made records: five seeds unless a test is about fewer."""

import pytest

from made_records import record
from torchcaps.study import find_claim
from torchcaps.study.judges import judge_statement

NOISE = (-0.02, -0.01, 0.0, 0.01, 0.02)
SHIELDS = "peer2022-q-relu-shields-first-layer"


def word(name, records):
    found = judge_statement(find_claim(name), records)
    return None if found is None else found.word


def capsnet(accuracy, *, bias, negative=0.0, share=0.0, seeds=5):
    """Behind a ReLU; one seed has these shares, the others none."""
    return record(
        "capsnet",
        "mnist",
        values={
            # A difference of two networks varies too.
            "accuracy": [accuracy + (1 + bias) * x for x in NOISE[:seeds]],
            "negative_share.1": [negative, *[0.0] * (seeds - 1)],
            "antipodal_share.1": [share, *[0.0] * (seeds - 1)],
        },
        primary_relu=True,
        bias=bias,
    )


@pytest.mark.parametrize(
    ("gain", "shares", "expected"),
    [
        (0.1, {}, "holds"),
        # 0.29 ± 0.015 by two one-sided tests.
        (0.29, {}, "undecided"),
        (0.5, {}, "fails"),
        # A bias that costs accuracy is not what the statement denies.
        (-0.5, {}, "undecided"),
        (0.1, {"negative": 1e-9}, "undecided"),
        (0.1, {"share": 1e-9}, "undecided"),
        (0.1, {"seeds": 4}, "undecided"),
    ],
)
def test_a_relu_shields_the_first_layer(gain, shares, expected):
    records = [capsnet(99.0, bias=False), capsnet(99.0 + gain, bias=True, **shares)]
    assert word(SHIELDS, records) == expected


def test_both_networks_are_needed():
    assert word(SHIELDS, [capsnet(99.0, bias=False)]) is None
    bare = record("capsnet", "mnist", values={"accuracy": [99.0] * 5}, primary_relu=True, bias=True)
    assert word(SHIELDS, [capsnet(99.0, bias=False), bare]) is None
