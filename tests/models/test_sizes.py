"""Networks have as many parameters as sizes.toml says."""

import pytest
import torch

from tables import cases_beside, worked_out
from torchcaps import create_model

SIZES = cases_beside(__file__, "sizes.toml")


@pytest.mark.parametrize(("name", "case"), [pytest.param(x.id, *x.values, id=x.id) for x in SIZES])
def test_parameters_are_counted(name, case):
    with torch.device("meta"):
        model = create_model(name.split()[0].rstrip(","), **case.get("options", {}))
    expected = worked_out(case["parameters"], {})
    assert sum(p.numel() for p in model.parameters()) == expected
