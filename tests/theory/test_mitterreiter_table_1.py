"""[mitterreiter2023] Table 1: dys = n · dyr holds for the printed pairs where n counts the targets
that are alive, and for no pair where n counts all 16 capsules of a layer."""

import json
from pathlib import Path

import pytest

CLAIMS = Path(__file__).parents[2] / "claims" / "papers" / "mitterreiter2023.json"
ROWS = [
    (each["conditions"]["layer"], each["metric"], each["value"], each["std"])
    for each in json.loads(CLAIMS.read_text(encoding="utf-8"))
    if each["where"] == "Table 1"
]
TABLE = {(layer, metric): (value, std) for layer, metric, value, std in ROWS}
ABOVE = {"1": "2", "2": "3", "3": "4", "4": "output"}
# dyr is printed with two decimals.
HALF_A_DIGIT = 0.005


def possible(layer, n, spread):
    """Least and greatest dys = n · dyr of the printed dyr, for n between n ± spread."""
    dyr, _ = TABLE[layer, "dyr"]
    return (n - spread) * (dyr - HALF_A_DIGIT), (n + spread) * (dyr + HALF_A_DIGIT)


@pytest.mark.parametrize("layer", ABOVE)
def test_alive_targets_give_the_printed_pairs(layer):
    alive, spread = TABLE[ABOVE[layer], "capsules_alive"]
    dys, _ = TABLE[layer, "dys"]
    low, high = possible(layer, alive, spread)
    assert low <= dys <= high


@pytest.mark.parametrize("layer", ["1", "2", "3"])
def test_all_targets_do_not(layer):
    dys, std = TABLE[layer, "dys"]
    low, _ = possible(layer, 16, 0)
    assert dys < low
    # Where many targets are dead the printed spread over models does not close the gap either.
    assert layer == "1" or dys + 2 * std < low


def test_targets_alive_are_the_quotients():
    found = [round(TABLE[layer, "dys"][0] / TABLE[layer, "dyr"][0], 1) for layer in ABOVE]
    assert found == [15.0, 6.9, 6.0, 9.9]
    assert [TABLE[above, "capsules_alive"][0] for above in ABOVE.values()] == [14.9, 7.0, 5.9, 10.0]
