"""How soon networks learn by made records: the accuracy of training images after every epoch."""

import numpy as np
import pytest

from made_records import record
from tables import rows_beside, worked_out
from torchcaps_claims import find_claim
from torchcaps_claims.judges import judge_statement

CASES = rows_beside(__file__, "cases.toml")["peer_curves"]

DYNAMIC, EM = "peer_deep_dynamic", "peer_deep_em"
BIAS = {DYNAMIC: ("none", "added"), EM: (False, True)}
FASTER = "peer2022-q-bias-converges-faster"


def net(model, n, arrivals, *, bias, epochs=50, before=0.5):
    """A seed for each epoch in which 95 % are right for the first time; None: in no epoch."""
    curves = [
        [0.95 if at is not None and epoch >= at else before for epoch in range(1, epochs + 1)]
        for at in arrivals
    ]
    # As a row holds it.
    rows = np.array(curves, dtype=np.float32).tolist()
    return record(
        model,
        "mnist",
        values={"accuracy": [98.0] * len(arrivals)},
        curves={"training_sample_accuracy": rows},
        fields={"protocol": "peer", "epochs": epochs}.items(),
        n_layers=n,
        bias=BIAS[model][bias],
    )


def judged(without, with_bias, *, of_two=((9, 8, 9, 8, 9), (5, 5, 5, 5, 5))):
    """Networks of five EM layers and of three, as given; of two layers as in `of_two`."""
    records = [
        net(model, n, pair[bias], bias=bias)
        for model, n, pair in (
            (EM, 5, (without, with_bias)),
            (DYNAMIC, 3, (without, with_bias)),
            (DYNAMIC, 2, of_two),
        )
        for bias in (False, True)
    ]
    return judge_statement(find_claim(FASTER), records)


@pytest.mark.parametrize(
    ("without", "with_bias", "expected"), CASES["a_bias_is_faster_in_every_network"]
)
def test_a_bias_is_faster_in_every_network(without, with_bias, expected):
    assert judged(without, with_bias).word == expected


def test_one_network_in_which_it_is_slower_is_enough():
    slower = ((5, 5, 5, 5, 5), (9, 8, 9, 8, 9))
    assert judged((20, 21, 20, 22, 20), (5, 5, 6, 5, 5), of_two=slower).word == "fails"


def test_steps_are_told():
    """60,000 images in batches of 256 are 235 steps; two layers gain 3.6 epochs on average."""
    assert judged((20, 21, 20, 22, 20), (5, 5, 6, 5, 5)).ours.mean == pytest.approx(3.6 * 235)


def test_nothing_is_judged_of_networks_that_never_get_there():
    nowhere = (None,) * 5
    assert judged(nowhere, nowhere, of_two=(nowhere, nowhere)) is None


AT_ONCE = dict.fromkeys(range(5, 10), (1,) * 5)
# Of 235 steps each: 1,000 steps lie in the fifth epoch.
LATE = {5: (6,) * 5, 6: (9,) * 5, 7: (20,) * 5, 8: (None,) * 5, 9: (None,) * 5}


def begun(with_bias=(), without=(), **given):
    """The first epochs above chance by depth, where they differ from what the paper says."""
    records = [
        net(EM, n, arrivals, bias=bias, before=0.2, **given)
        for bias, found in ((True, AT_ONCE | dict(with_bias)), (False, LATE | dict(without)))
        for n, arrivals in found.items()
    ]
    return judge_statement(find_claim("peer2022-q-bias-starts-immediately"), records)


@pytest.mark.parametrize(
    ("with_bias", "without", "expected"), CASES["learning_begins_at_once_with_a_bias_alone"]
)
def test_learning_begins_at_once_with_a_bias_alone(with_bias, without, expected):
    with_bias = worked_out(with_bias, globals())
    without = worked_out(without, globals())
    assert begun(with_bias, without).word == expected


def test_fewer_epochs_cannot_show_that_it_never_begins():
    assert begun(epochs=49).word == "undecided"
    assert begun(without={7: (20,) * 5, 9: (49,) * 5}, epochs=49).word == "fails"
