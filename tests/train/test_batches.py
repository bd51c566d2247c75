"""Batches: every image once an epoch, in an order that (seed, epoch) alone decides."""

import itertools
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from torchcaps.data import Batch, ImageSet, MultiMnist, PartWholeSpec, augmented, part_whole
from torchcaps.train.batches import Batches, held_on, seed_of


def numbered(count):
    """Image k holds the byte k, so that a batch tells which images it is made of."""
    images = torch.arange(count, dtype=torch.uint8).reshape(count, 1, 1, 1).expand(-1, 1, 2, 2)
    return ImageSet("numbered", images, torch.arange(count) % 3, ("a", "b", "c"))


@dataclass
class Fresh:
    """Image k of epoch e is 100 e + k, made when it is wanted."""

    count: int

    def __len__(self):
        return self.count

    def batch(self, index, epoch=0):
        made = (100.0 * epoch + index).reshape(-1, 1, 1, 1)
        return Batch(made, index % 3, made[:, None].expand(-1, 2, 1, 1, 1))


def numbers(batches):
    return [(pixels[:, 0, 0, 0] * 255).round().int().tolist() for pixels, _, _ in batches]


def order(seed, epoch, count=23):
    batches = Batches(numbered(count), 5, seed=seed)
    batches.sampler.set_epoch(epoch)
    return numbers(batches)


@pytest.mark.parametrize("seed", [3, None])
@pytest.mark.parametrize(("count", "sizes"), [(23, [5, 5, 5, 5, 3]), (20, [5] * 4), (2, [2])])
def test_every_image_comes_once_and_the_last_batch_is_smaller(seed, count, sizes):
    batches = Batches(numbered(count), 5, seed=seed)
    seen = numbers(batches)
    assert len(batches) == len(sizes)
    assert [len(batch) for batch in seen] == sizes
    assert sorted(itertools.chain(*seen)) == list(range(count))


def test_pixels_are_floats_and_stay_beside_their_labels():
    for pixels, labels, _ in Batches(numbered(23), 4, seed=1):
        assert pixels.dtype == torch.float32
        assert pixels.max() <= 22 / 255
        assert torch.equal((pixels[:, 0, 1, 1] * 255).round().long() % 3, labels)


def test_without_a_seed_the_order_is_that_of_the_images():
    labels = torch.cat([labels for _, labels, _ in Batches(numbered(23), 5)])
    assert labels.tolist() == [k % 3 for k in range(23)]


def test_the_order_depends_on_seed_and_epoch_alone():
    before = order(seed=7, epoch=2)
    torch.manual_seed(99)
    assert order(seed=7, epoch=2) == before
    others = [
        order(seed, epoch) for seed in (6, 7, 8) for epoch in range(5) if (seed, epoch) != (7, 2)
    ]
    assert before not in others
    assert len({str(each) for each in others}) == len(others)


def test_an_epoch_looked_at_twice_or_out_of_turn_is_the_same():
    batches = Batches(numbered(23), 5, seed=7)
    seen = []
    for epoch in (4, 0, 4, 4):
        batches.sampler.set_epoch(epoch)
        seen.append([labels.tolist() for _, labels, _ in batches])
    assert seen[0] == seen[2] == seen[3] != seen[1]


@pytest.mark.parametrize(("seed", "expected"), [(7, 3), (None, 0)])
def test_images_are_those_of_the_epoch_and_to_be_looked_at_those_of_epoch_0(seed, expected):
    batches = Batches(Fresh(23), 5, seed=seed)
    batches.sampler.set_epoch(3)
    drawn = torch.cat([pixels.flatten() for pixels, _, _ in batches])
    assert set((drawn // 100).tolist()) == {expected}
    assert sorted((drawn % 100).tolist()) == list(range(23))


# Torch thinks four too many for two cores.
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [1, 4])
def test_workers_make_the_same_batches_of_the_same_epoch(workers):
    here = Batches(Fresh(23), 5, seed=7)
    there = Batches(Fresh(23), 5, seed=7, workers=workers)
    state = torch.get_rng_state()
    iterators = [iter(here), iter(there)]
    # As Lightning does on resuming: the iterator first, then the epoch.
    for batches in (here, there):
        batches.sampler.set_epoch(2)
    found, expected = map(list, reversed(iterators))
    assert len(found) == len(expected) == 5
    assert all(isinstance(batch, Batch) for batch in found)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert found[0].pixels.min() >= 200
    assert torch.equal(torch.get_rng_state(), state)
    assert there.given == 5


@pytest.mark.parametrize("workers", [0, 1])
def test_what_was_given_is_left_out_once_after_a_stop(workers):
    whole = order(seed=7, epoch=2)
    stopped = Batches(numbered(23), 5, seed=7)
    stopped.sampler.set_epoch(2)
    given = iter(stopped)
    for expected in (0, 5, 10):
        assert stopped.seen() == expected
        next(given)
    resumed = Batches(numbered(23), 5, seed=7, workers=workers)
    resumed.load_state_dict(stopped.state_dict())
    resumed.sampler.set_epoch(2)
    assert resumed.seen() == 15
    # Lightning takes as many as there are and never asks for the end.
    rest = iter(resumed)
    taken = [(next(rest).pixels[:, 0, 0, 0] * 255).round().int().tolist() for _ in range(2)]
    assert taken == whole[3:]
    assert (resumed.given, resumed.seen(), len(resumed)) == (5, 23, 5)
    resumed.sampler.set_epoch(3)
    assert numbers(resumed) == order(seed=7, epoch=3)


@pytest.mark.parametrize("count", [23, 21, 20])
@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("seed", [7, None])
def test_ranks_share_every_batch_in_its_order(count, ranks, seed):
    whole = numbers(Batches(numbered(count), 5, seed=seed))
    each = [Batches(numbered(count), 5, seed=seed, rank=rank, ranks=ranks) for rank in range(ranks)]
    steps = 0
    for expected, *given in zip(whole, *each, strict=True):
        own = [(pixels[:, 0, 0, 0] * 255).round().int().tolist() for pixels, _, _ in given]
        shares = [batches.share for batches in each]
        # A rank whose share is nothing stands in with the first image.
        assert all(images == expected[:1] for images, s in zip(own, shares, strict=True) if not s)
        kept = [images for images, share in zip(own, shares, strict=True) if share]
        assert list(itertools.chain(*kept)) == expected
        sizes = [len(images) if share else 0 for images, share in zip(own, shares, strict=True)]
        assert shares == [size / len(expected) for size in sizes]
        assert max(sizes) - min(sizes) <= 1
        steps += 1
    assert steps == -(-count // 5)
    assert {batches.seen() for batches in each} == {count}


class Asked(ImageSet):
    """Says on which device, and of how many, batches were asked for."""

    asked: ClassVar[list[int]] = []

    def batch(self, index, epoch=0):
        assert index.device == self.images.device
        self.asked.append(len(index))
        return super().batch(index, epoch)


@pytest.mark.parametrize(("rank", "ranks"), [(0, 1), (0, 3), (2, 3)])
def test_where_images_lie_many_batches_are_made_together(monkeypatch, rank, ranks):
    # Of two batches of four images.
    monkeypatch.setattr("torchcaps.train.batches.AT_ONCE", 4 * 4 * 400 * 2)
    plain = part_whole("train", 22, spec=PartWholeSpec(size=20))
    here = torch.device("cpu")
    for images in (plain, augmented(plain, "shift2", 3), MultiMnist(plain, copies=1)):
        one, together = (
            Batches(images, 4, seed=1, rank=rank, ranks=ranks, device=device)
            for device in (None, here)
        )
        for each in (one, together):
            each.sampler.set_epoch(2)
            each.load_state_dict({"given": 1})
        seen = [(each.given, each.share, batch) for each in (one, together) for batch in each]
        half = len(seen) // 2
        assert half == len(one) - 1
        for mine, theirs in zip(seen[:half], seen[half:], strict=True):
            assert mine[:2] == theirs[:2]
            assert all(
                torch.equal(a, b) for a, b in zip(mine[2], theirs[2], strict=True) if a is not None
            )
    Asked.asked.clear()
    held = Asked(plain.name, plain.images, plain.labels, plain.class_names)
    list(Batches(held, 4, seed=1, device=here))
    assert held.asked == [8, 8, 6]


class Movable:
    """Images of which it is known where they are."""

    def __init__(self, fits):
        self.fits = fits

    def to(self, device):
        if not self.fits:
            raise torch.cuda.OutOfMemoryError("out of memory")
        return f"on {device}"


@pytest.mark.parametrize(
    ("device", "fits", "free", "stays"),
    [
        ("cpu", True, 0, True),
        ("cuda:1", True, 50, False),
        ("cuda:1", True, 49, True),
        ("cuda:1", False, 100, True),
    ],
)
def test_images_lie_on_a_gpu_of_which_half_stays_free(monkeypatch, device, fits, free, stays):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 100))
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    images = Movable(fits)
    assert held_on(images, torch.device(device)) == (images if stays else "on cuda:1")
    # What was moved in vain is given back.
    assert bool(emptied) == (stays and fits and device != "cpu")


def test_seeds_of_neighbours_are_all_different_and_within_what_torch_takes():
    seeds = [seed_of(seed, number) for seed, number in itertools.product(range(60), range(60))]
    assert len(set(seeds)) == 3600
    assert all(0 <= seed < 2**63 for seed in seeds)
    # The generator of the processor looks at the low half only.
    assert len({seed % 2**32 for seed in seeds}) == 3600
    assert seed_of(1, 2, 3) != seed_of(1, 3, 2)


def test_neighbouring_numbers_flip_half_of_the_bits_of_a_seed():
    flipped = [
        (seed_of(seed, number) ^ seed_of(seed, number + 1)).bit_count()
        for seed in range(20)
        for number in range(100)
    ]
    # 2000 means of 63 fair bits: 31.5, give or take 4 standard errors.
    assert abs(sum(flipped) / len(flipped) - 31.5) < 4 * (63 / 4 / 2000) ** 0.5
