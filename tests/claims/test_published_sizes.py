"""Published sizes beside ours: which are equal, and why the others are not."""

import pytest

from torchcaps_claims import claims, published_sizes
from torchcaps_claims.sizes import REASONS

SIZES = {size.claim: size for size in published_sizes()}


def test_every_printed_size_is_there():
    assert list(SIZES) == [claim.id for claim in claims() if claim.kind == "params"]
    assert len(SIZES) == 53


@pytest.mark.parametrize(
    ("claim", "printed", "model", "ours"),
    [
        ("gu2021-t3-capsnet-k3-params", "16.1M", "gu_capsnet", 16_111_424),
        ("gu2021-t3-convnet-avg-k5-params", "1.70M", "convnet_avg", 1_647_882),
        (
            "tsai2020-t1-dynamic-routing-resnet-cifar-100-params",
            "36.04M",
            "tsai_dynamic_resnet_c100",
            36_044_096,
        ),
        # 452,896 and 148 costs of EM routing, one pair for every parent type.
        (
            "tsai2020-t1-em-routing-simple-cifar-10-params",
            "0.45M",
            "tsai_em_simple_c10",
            452_896 + 148,
        ),
        ("rem-t9-gamma-capsnet-q-params", "7.7M", "rem_gamma", 7_730_336),
    ],
)
def test_sizes_by_hand(claim, printed, model, ours):
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
