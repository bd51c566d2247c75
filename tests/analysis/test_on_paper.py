"""Numbers of traces made by hand, worked out in on_paper.toml, are what is measured."""

import json
import math
from dataclasses import replace

import pytest
import torch

from tables import cases_beside, worked_out
from torchcaps import analysis
from torchcaps.analysis import Thresholds
from traces import even, network, switching

NAMES = vars(math) | {"torch": torch, "even": even, "switching": switching}


def measured(case):
    couplings, lengths = (worked_out(case.get(x, {}), NAMES) for x in ("couplings", "lengths"))
    over = case.get("normalised_over", "parents")
    trace = tuple(replace(layer, normalised_over=over) for layer in network(couplings, lengths))
    make, options = getattr(analysis, case["measure"]), case.get("options", {})
    if "thresholds" in options:
        options = options | {"thresholds": Thresholds(*options["thresholds"])}
    if not case["measure"].startswith("Measure"):
        return make(trace, **options)
    measurement = make(**options)
    measurement.add(trace, *([torch.tensor(case["labels"])] if "labels" in case else []))
    return measurement.result()


def assert_has(found, expected, near, where=""):
    """All that is expected is found; other numbers may be there too."""
    if isinstance(expected, dict):
        for name, each in expected.items():
            assert_has(found[name], each, near, f"{where}.{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for number, pair in enumerate(zip(found, expected, strict=True)):
            assert_has(*pair, near, f"{where}[{number}]")
    elif isinstance(expected, float | int):
        assert found == pytest.approx(expected, rel=1e-12, abs=near), where
    else:
        assert found == expected, where


@pytest.mark.parametrize("case", cases_beside(__file__, "on_paper.toml"))
def test_numbers_on_paper(case):
    found = json.loads(measured(case).to_json())
    assert_has(found, worked_out(case["gives"], NAMES), case.get("near", 1e-9))
