"""Published sizes beside ours: which are equal, and why the others are not."""

import pytest

from tables import rows_beside, worked_out
from torchcaps_claims import claims, published_sizes
from torchcaps_claims.sizes import REASONS

CASES = rows_beside(__file__, "cases.toml")["published_sizes"]

SIZES = {size.claim: size for size in published_sizes()}


def test_every_printed_size_is_there():
    assert list(SIZES) == [claim.id for claim in claims() if claim.kind == "params"]
    assert len(SIZES) == 53


@pytest.mark.parametrize(("claim", "printed", "model", "ours"), CASES["sizes_by_hand"])
def test_sizes_by_hand(claim, printed, model, ours):
    ours = worked_out(ours, globals())
    size = SIZES[claim]
    assert (size.printed, size.model, size.ours) == (printed, model, ours)


def test_what_is_not_equal_has_its_reason():
    differing = {name: size.why for name, size in SIZES.items() if size.ours and size.why}
    assert differing == REASONS
    assert all(size.is_equal == (size.ours is not None and not size.why) for size in SIZES.values())
    assert sum(size.is_equal for size in SIZES.values()) == 39


def test_what_cannot_be_counted_says_why():
    missing = {size.why for size in SIZES.values() if size.ours is None}
    assert missing == {
        "counts what pruning leaves, which only training can tell",
        "the paper gives no layers for it",
    }
