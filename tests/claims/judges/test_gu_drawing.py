"""What decoders see and draw, by made records."""

from functools import partial

import pytest

from made_records import record, word_of
from tables import rows_beside
from torchcaps_claims import find_claim
from torchcaps_claims.judges import judge_statement

CASES = rows_beside(__file__, "cases.toml")["gu_drawing"]

word = partial(word_of, "gu2021-q-")

NOISE = (-0.02, -0.01, 0.0, 0.01, 0.02)


def points(model, silhouette, nearest, **options):
    values = {"silhouette": [silhouette + n for n in NOISE], "nearest_centroid": nearest}
    return record(model, "toy-2d", values=values, **{"kernel": 1, **options})


@pytest.mark.parametrize("silhouette", [0.4, 0.5, 0.9])
def test_points_of_our_own_decide_nothing(silhouette):
    """Nearest centroids of 100 % are asked for by the row, and are no reason either."""
    masked = points("gu_convnet_cr", silhouette, [100.0] * 2 + [99.9] * 3)
    plain, claim = points("gu_convnet_r", 0.5, [90.0] * 5), "gu2021-q-cr-separates-classes"
    found = judge_statement(find_claim(claim), [masked, plain])
    assert found.leaning().word == "undecided"
    assert found.open_because == (
        "the points are ours, and what the decoder sees is masked by the true class"
    )
    assert word("cr-separates-classes", masked) is None
    large = points("gu_convnet_r", 0.5, [90.0] * 5, kernel=9)
    assert word("cr-separates-classes", masked, large) is None


def drawn(model, change, **options):
    return record(model, "mnist", values={"change.0.2": change}, **options)


@pytest.mark.parametrize(("change", "expected"), CASES["a_drawing_changes_five_times_as_far"])
def test_a_drawing_changes_five_times_as_far(change, expected):
    plain = drawn("gu_convnet_r", [0.01] * 5)
    assert word("perturbation-range", drawn("gu_capsnet", change), plain) == expected
    assert word("perturbation-range", drawn("gu_capsnet", change)) is None
    # Nor is there a ratio to a drawing that does not change.
    never = drawn("gu_convnet_r", [0.0] * 5)
    assert word("perturbation-range", drawn("gu_capsnet", change), never) is None
