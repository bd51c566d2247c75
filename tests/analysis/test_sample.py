"""A sample depends on the images and the seed alone."""

import pytest
import torch

from torchcaps.analysis.sample import Sample
from torchcaps.errors import TorchcapsError

PIXELS = torch.arange(50).view(50, 1)


def sampled(pixels, size=10, seed=0, batch=7):
    sample = Sample(size=size, seed=seed)
    for some in pixels.split(batch):
        sample.add(some, some * 2)
    return sample.columns()[0].flatten().tolist()


def test_neither_order_nor_batches_choose():
    whole = sampled(PIXELS)
    assert len(set(whole)) == 10
    assert sampled(PIXELS.flip(0)) == whole
    assert sampled(PIXELS, batch=30) == whole
    assert sampled(PIXELS, size=100, batch=45) == sampled(PIXELS, size=100)


def test_of_equal_images_with_two_labels_the_order_does_not_choose():
    pixels, labels = torch.zeros(2, 3), torch.tensor([4, 7])
    for order in ([0, 1], [1, 0]):
        sample = Sample(size=2)
        sample.add(pixels[order[:1]], labels[order[:1]])
        sample.add(pixels[order[1:]], labels[order[1:]])
        assert sample.columns()[0].tolist() == [4]


def test_the_seed_chooses():
    assert sampled(PIXELS, seed=1) != sampled(PIXELS, seed=2)


def test_every_image_is_about_as_likely():
    counts = torch.zeros(50)
    for seed in range(400):
        counts[torch.tensor(sampled(PIXELS, seed=seed)) // 2] += 1
    # 80 each on average, with a standard deviation of 8.
    assert counts.sum() == 4000
    assert counts.min() > 80 - 4 * 8
    assert counts.max() < 80 + 4 * 8


@pytest.mark.parametrize(
    ("settings", "came"),
    [
        ({"seed": "a"}, "seed came as 'a'"),
        ({"seed": 0.5}, "seed came as 0.5"),
        ({"seed": 2**63}, "seed came as 9223372036854775808"),
        ({"size": "20"}, "size came as '20'"),
        ({"size": True}, "size came as True"),
        ({"size": 2.5}, "size came as 2.5"),
    ],
)
def test_no_whole_numbers(settings, came):
    with pytest.raises(TorchcapsError) as refusal:
        Sample(**settings)
    assert str(refusal.value) == (
        f"a sample for pairs is drawn by whole numbers, its size and its seed, but {came}."
    )


def test_too_small():
    with pytest.raises(TorchcapsError, match="needs at least 2 images, but size is 1"):
        Sample(size=1)
