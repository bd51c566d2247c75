"""How soon networks learn by made records: the accuracy of training images after every epoch."""

import numpy as np
import pytest

from made_records import record
from torchcaps.study import find_claim
from torchcaps.study.judges import judge_statement

DYNAMIC, EM = "peer_deep_dynamic", "peer_deep_em"
BIAS = {DYNAMIC: ("none", "added"), EM: (False, True)}
FASTER = "peer2022-q-bias-converges-faster"


def net(model, n, arrivals, *, bias, epochs=50):
    """A seed for each epoch in which 95 % are right for the first time; None: in no epoch."""
    curves = [
        [0.95 if at is not None and epoch >= at else 0.5 for epoch in range(1, epochs + 1)]
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
    ("without", "with_bias", "expected"),
    [
        ((20, 21, 20, 22, 20), (5, 5, 6, 5, 5), "holds"),
        ((5, 5, 6, 5, 5), (20, 21, 20, 22, 20), "fails"),
        # In the same epoch, which may be sooner or later.
        ((5, 5, 5, 5, 5), (5, 5, 5, 5, 5), "undecided"),
        ((20, 21, 20, 22), (5, 5, 6, 5), "undecided"),
        # In the last epoch at the soonest.
        ((None,) * 5, (5, 5, 6, 5, 5), "holds"),
        # A seed in which neither gets there says nothing, and four are too few.
        ((20, 21, 20, 22, None), (5, 5, 6, 5, None), "undecided"),
    ],
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
