"""Steps of epochs by recipes."""

import pytest

from tables import rows_beside
from torchcaps_claims.onset import ends_of_epochs

CASES = rows_beside(__file__, "cases.toml")["ends_of_epochs"]


@pytest.mark.parametrize(("recipe", "expected"), CASES["the_last_batch_of_an_epoch_may_be_small"])
def test_the_last_batch_of_an_epoch_may_be_small(recipe, expected):
    assert ends_of_epochs(recipe, 2) == tuple(expected)
