"""A sample depends on the images and the seed alone."""

import torch

from torchcaps.analysis.sample import Sample

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
