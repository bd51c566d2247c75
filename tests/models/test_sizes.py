"""Networks have as many parameters as sizes.toml says."""

import pytest

from on_meta import count
from tables import cases_beside, worked_out

SIZES = cases_beside(__file__, "sizes.toml")


@pytest.mark.parametrize(("name", "case"), [pytest.param(x.id, *x.values, id=x.id) for x in SIZES])
def test_parameters_are_counted(name, case):
    found = count(name.split()[0].rstrip(","), **case.get("options", {}))
    assert found == worked_out(case["parameters"], {})
