"""Inputs that are near opposites by made records: five seeds unless a test is about fewer."""

import pytest

from made_records import record
from tables import rows_beside, worked_out
from torchcaps_claims import find_claim
from torchcaps_claims.judges import judge_statement

CASES = rows_beside(__file__, "cases.toml")["peer_opposites"]

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


def without_relu(accuracy, *, bias):
    values = {"accuracy": [accuracy + (1 + bias) * x for x in NOISE]}
    return record("capsnet", "mnist", values=values, bias=bias)


@pytest.mark.parametrize(("gain", "shares", "expected"), CASES["a_relu_shields_the_first_layer"])
def test_a_relu_shields_the_first_layer(gain, shares, expected):
    records = [capsnet(99.0, bias=False), capsnet(99.0 + gain, bias=True, **shares)]
    # Without the ReLU a bias is needed.
    needed = [without_relu(98.0, bias=False), without_relu(99.0, bias=True)]
    assert word(SHIELDS, [*records, *needed]) == expected


def test_what_no_network_needs_shows_nothing_of_the_relu():
    records = [capsnet(99.0, bias=False), capsnet(99.1, bias=True)]
    needless = [without_relu(98.5, bias=False), without_relu(98.6, bias=True)]
    for others in ([], needless):
        found = judge_statement(find_claim(SHIELDS), [*records, *others])
        assert (found.word, found.leaning().word) == ("undecided", "undecided")
        assert found.open_because == (
            "without the ReLU a bias gains as little, so that nothing shows what it shields from"
        )


def test_both_networks_are_needed():
    assert word(SHIELDS, [capsnet(99.0, bias=False)]) is None
    bare = record("capsnet", "mnist", values={"accuracy": [99.0] * 5}, primary_relu=True, bias=True)
    assert word(SHIELDS, [capsnet(99.0, bias=False), bare]) is None


GROW = "peer2022-q-negatives-grow-with-depth"
UP, DOWN, NONE = (0.0, 0.1, 0.2), (0.2, 0.1, 0.0), (0.1, 0.1, 0.1)


def deep(model, n, data, *, start=UP, end=UP, cosines=(-0.8, -0.9, -0.95), right=98.0, seeds=5):
    """Shares of three layers from below, before and after training, of all seeds alike."""
    values = {"accuracy": [right] * seeds}
    for k in range(3):
        values[f"antipodal_share_at_start.{k + 1}"] = [start[k]] * seeds
        values[f"antipodal_share.{k + 1}"] = [end[k]] * seeds
        values[f"lowest_cosine_at_start.{k + 1}"] = [cosines[k]] * seeds
        values[f"lowest_cosine.{k + 1}"] = [cosines[k]] * seeds
    return record(model, data, values=values, n_layers=n)


def growth(**last):
    """Four systems, of which the last is as given."""
    systems = [
        (m, n, d)
        for d in ("mnist", "fashion-mnist")
        for m, n in (("peer_deep_dynamic", 5), ("peer_deep_em", 9))
    ]
    return word(GROW, [*(deep(*each) for each in systems[:-1]), deep(*systems[-1], **last)])


@pytest.mark.parametrize(("last", "expected"), CASES["opposites_become_more_from_layer_to_layer"])
def test_opposites_become_more_from_layer_to_layer(last, expected):
    last = worked_out(last, globals())
    assert growth(**last) == expected


def test_every_system_is_needed():
    assert word(GROW, [deep("peer_deep_em", 9, "mnist")]) is None


CANCELS = "peer2022-q-gradient-cancellation"


def signs(cosine, chi, *, bias, end=0.0, accuracy=50.0):
    return record(
        "peer_sign_dynamic",
        "sign",
        values={
            "cancellation_cosine_at_start": [cosine + x for x in NOISE],
            "cancellation_cosine": [end + x for x in NOISE],
            "cancellation_chi_at_start": [chi + (1 + (bias == "none")) * x for x in NOISE],
            "accuracy": [accuracy] * 5,
        },
        fields=[("loss", "margin"), ("lambda_", 1.0)],
        bias=bias,
    )


def four_layers(cosine, chi, *, bias):
    values = {
        "cancellation_cosine_at_start": [cosine + x for x in NOISE],
        "cancellation_chi_at_start": [chi + (1 + (bias == "none")) * x for x in NOISE],
        "accuracy": [98.0] * 5,
    }
    return record("peer_deep_dynamic", "mnist", values=values, n_layers=4, bias=bias)


def test_a_hypothesis_that_one_routing_bears_out_is_open():
    """By dynamic routing opposites agree, and by EM routing they cancel."""
    nets = [signs(0.4, 0.9, end=0.6, bias="none"), signs(0.0, 0.5, bias="added", accuracy=99.0)]
    loss = [("loss", "margin"), ("lambda_", 1.0)]
    values = {"cancellation_cosine_at_start": [-0.73 + x for x in NOISE]}
    em = record("peer_sign_em", "sign", values=values, fields=loss)
    found = judge_statement(find_claim(CANCELS), [*nets, em])
    assert (found.word, found.leaning().word) == ("undecided", "undecided")
    assert judge_statement(find_claim(CANCELS), nets).word == "fails"


@pytest.mark.parametrize(("without", "expected"), CASES["opposites_cancel_before_learning_begins"])
def test_opposites_cancel_before_learning_begins(without, expected):
    nets = [signs(**without, bias="none"), signs(0.0, 0.5, bias="added", accuracy=99.0)]
    images = [four_layers(-0.95, 0.9, bias="none"), four_layers(0.0, 0.3, bias="added")]
    assert word(CANCELS, [*nets, *images]) == expected
    # Without the images it can be contradicted and no more.
    assert word(CANCELS, nets) == (expected if expected == "fails" else None)
