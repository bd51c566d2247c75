"""Batches: every image once an epoch, in an order that (seed, epoch) alone decides."""

import itertools

import pytest
import torch

from torchcaps.data import ImageSet
from torchcaps.train.batches import loader, seed_of


def numbered(count: int) -> ImageSet:
    """Image k holds the byte k, so that a batch tells which images it is made of."""
    images = torch.arange(count, dtype=torch.uint8).reshape(count, 1, 1, 1).expand(-1, 1, 2, 2)
    return ImageSet("numbered", images, torch.arange(count) % 3, ("a", "b", "c"))


def order(seed: int, epoch: int, count: int = 23) -> list[list[int]]:
    batches = loader(numbered(count), 5, seed=seed, shuffle=True)
    batches.sampler.set_epoch(epoch)
    return [(pixels[:, 0, 0, 0] * 255).round().int().tolist() for pixels, _, _ in batches]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(("count", "sizes"), [(23, [5, 5, 5, 5, 3]), (20, [5] * 4), (2, [2])])
def test_every_image_comes_once_and_the_last_batch_is_smaller(shuffle, count, sizes) -> None:
    batches = loader(numbered(count), 5, seed=3, shuffle=shuffle)
    seen = [(pixels * 255).round()[:, 0, 0, 0].long() for pixels, _, _ in batches]
    assert len(batches) == len(sizes)
    assert [len(batch) for batch in seen] == sizes
    assert sorted(torch.cat(seen).tolist()) == list(range(count))


def test_pixels_are_floats_and_stay_beside_their_labels() -> None:
    for pixels, labels, _ in loader(numbered(23), 4, seed=1, shuffle=True):
        assert pixels.dtype == torch.float32
        assert pixels.max() <= 22 / 255
        assert torch.equal((pixels[:, 0, 1, 1] * 255).round().long() % 3, labels)


def test_without_shuffling_the_order_is_that_of_the_images() -> None:
    labels = torch.cat([labels for _, labels, _ in loader(numbered(23), 5)])
    assert labels.tolist() == [k % 3 for k in range(23)]


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    before = order(seed=7, epoch=2)
    torch.manual_seed(99)
    assert order(seed=7, epoch=2) == before
    others = [
        order(seed, epoch) for seed in (6, 7, 8) for epoch in range(5) if (seed, epoch) != (7, 2)
    ]
    assert before not in others
    assert len({str(each) for each in others}) == len(others)


def test_an_epoch_looked_at_twice_or_out_of_turn_is_the_same() -> None:
    batches = loader(numbered(23), 5, seed=7, shuffle=True)
    seen = []
    for epoch in (4, 0, 4, 4):
        batches.sampler.set_epoch(epoch)
        seen.append([labels.tolist() for _, labels, _ in batches])
    assert seen[0] == seen[2] == seen[3] != seen[1]


def test_iterating_draws_nothing_from_the_global_generator() -> None:
    before = torch.get_rng_state()
    list(loader(numbered(23), 5, seed=7, shuffle=True))
    assert torch.equal(torch.get_rng_state(), before)


def test_seeds_of_neighbours_are_all_different_and_within_what_torch_takes() -> None:
    seeds = [seed_of(seed, number) for seed, number in itertools.product(range(60), range(60))]
    assert len(set(seeds)) == 3600
    assert all(0 <= seed < 2**63 for seed in seeds)
    # The generator of the processor looks at the low half only.
    assert len({seed % 2**32 for seed in seeds}) == 3600
    assert seed_of(1, 2, 3) != seed_of(1, 3, 2)


def test_neighbouring_numbers_flip_half_of_the_bits_of_a_seed() -> None:
    flipped = [
        (seed_of(seed, number) ^ seed_of(seed, number + 1)).bit_count()
        for seed in range(20)
        for number in range(100)
    ]
    # 2000 means of 63 fair bits: 31.5, give or take 4 standard errors.
    assert abs(sum(flipped) / len(flipped) - 31.5) < 4 * (63 / 4 / 2000) ** 0.5
