"""When learning began, between which steps."""

import pytest

from made_records import record
from torchcaps_claims import find_claim, plan_of, result_of
from torchcaps_claims.onset import Onset, onset_in
from torchcaps_claims.result import values_of

RECIPE = {"data": "mnist", "train_images": 20_000, "batch_size": 64}
START = "peer2022-text-em-nobias-start"


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ((0.1, 0.3, 0.9), Onset(313, 626)),
        ((0.3, 0.3, 0.9), Onset(0, 313)),
        # Ten points above chance are not more than ten.
        ((0.1, 0.2, 0.2), Onset(939, None)),
    ],
)
def test_learning_begins_within_an_epoch(curve, expected):
    assert onset_in(RECIPE, curve) == expected


def began(*epochs, **given):
    """Networks that are above chance from these epochs on; None: from none."""
    curves = [[0.9 if at is not None and e >= at else 0.1 for e in range(1, 51)] for at in epochs]
    return record(
        "peer_deep_em",
        "mnist",
        values={"accuracy": [98.0] * len(epochs)},
        curves={"training_sample_accuracy": curves},
        fields={"protocol": "peer"}.items(),
        claim=START,
        n_layers=5,
        bias=False,
        **given,
    )


def test_a_number_of_steps_is_how_many_there_were_at_least():
    claim = find_claim(START)
    # The fifth epoch begins after 940 steps; a network that never begins has 11,750.
    assert values_of(plan_of(claim), began(5, 5, 6, None)) == [940, 940, 1175, 11750]
    found = result_of(claim, {"a": began(5, 5, 5)})
    assert (found.verdict.word, found.verdict.ours.mean) == ("reproduced", 940)
    assert result_of(claim, {"a": began(3, 3, 3)}).verdict.word == "better"
    # The paper says "at least 1k", which later ones agree with.
    assert result_of(claim, {"a": began(20, 20, 20)}).verdict.word == "reproduced"


def test_a_narrow_network_decides_nothing():
    verdict = result_of(find_claim(START), {"a": began(5, 5, 5, width=32, reduced="less")}).verdict
    assert (verdict.word, verdict.incomparable) == (
        "not run at size",
        "its width is 32 and not 256",
    )


def test_a_record_without_rows_has_no_such_number():
    bare = record("peer_deep_em", "mnist", values={"accuracy": [98.0]}, claim=START, n_layers=5)
    assert values_of(plan_of(find_claim(START)), bare) is None
