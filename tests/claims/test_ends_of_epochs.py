"""Steps of epochs by recipes."""

import pytest

from torchcaps_claims.onset import ends_of_epochs


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ({"data": "mnist", "train_images": 20_000, "batch_size": 64}, (313, 626)),
        # Nothing held out, and a tenth.
        ({"data": "mnist", "validation_share": 0.0, "batch_size": 256}, (235, 470)),
        ({"data": "cifar10", "train_images": None, "batch_size": 128}, (352, 704)),
        # 313 batches, four to an update.
        ({"data": "mnist", "train_images": 20_000, "batch_size": 64, "accumulate": 4}, (79, 158)),
    ],
)
def test_the_last_batch_of_an_epoch_may_be_small(recipe, expected):
    assert ends_of_epochs(recipe, 2) == expected
