"""What holds for every set of images: the same image in any batch, and a DataLoader gives it."""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from laid_images import noise
from torchcaps.data import (
    AUGMENTATIONS,
    AffnistStyle,
    Cropped,
    DiverseMultiMnist,
    Expanded,
    MultiMnist,
    augmented,
    from_dataset,
    resized,
    sign_set,
    some_of,
)

# Each made of forty images in memory, by a seed where anything is drawn.
DRAWN: dict[str, Callable] = {
    "expanded": lambda base, seed: Expanded(base, seed=seed),
    "expanded twice": lambda base, seed: Expanded(base, seed=seed, copies=2, side=15),
    "affnist style": lambda base, seed: AffnistStyle(base, seed=seed),
    "affnist of gu": lambda base, seed: AffnistStyle(base, seed=seed, ranges="gu"),
    "multi": lambda base, seed: MultiMnist(base, seed=seed, copies=2),
    "multi anew": lambda base, seed: MultiMnist(base, seed=seed, fresh=True),
    "multi brightest": lambda base, seed: MultiMnist(base, seed=seed, overlay="max", shift=2),
    "diverse": lambda base, seed: DiverseMultiMnist(base, seed=seed),
    "diverse once": lambda base, seed: DiverseMultiMnist(base, seed=seed, fresh=False),
    "cropped": lambda base, seed: Cropped(base, (5, 7), seed=seed),
    "cropped pairs": lambda base, seed: Cropped(MultiMnist(base, seed=seed), (5, 7)),
    "resized pairs": lambda base, seed: resized(MultiMnist(base, seed=seed), (7, 9)),
    "some expanded": lambda base, seed: some_of(Expanded(base), 20, seed=seed),
    **{
        name: lambda base, seed, name=name: augmented(base, name, seed=seed)
        for name in sorted(AUGMENTATIONS.keys() - {"even-light"})
    },
}
STILL: dict[str, Callable] = {
    "even light": lambda base, seed: augmented(base, "even-light"),
    "memory": lambda base, seed: base,
    "centred": lambda base, seed: Expanded(base, placement="centred"),
    "middle": lambda base, seed: Cropped(base, (5, 7)),
    "numbers": lambda base, seed: sign_set(n=40),
    "some": lambda base, seed: some_of(base, 20),
}
SETS = DRAWN | STILL
SAME_IN_EVERY_EPOCH = {
    *("multi", "multi brightest", "diverse once", "cropped pairs", "resized pairs", *STILL),
}


def made(name: str, *, seed: int = 3, count: int = 40):
    torch.manual_seed(0)
    return SETS[name](noise(count), seed)


def same(one, other) -> bool:
    return all(a is b is None or torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", SETS)
def test_an_image_is_the_same_for_any_batch(name: str) -> None:
    images = made(name, count=150)
    whole = images.batch(slice(None), epoch=2)
    assert whole.pixels.shape == (len(images), *images.image_shape)
    for batch_size in (1, 7, 37, 128):
        order = torch.randperm(len(images))[: 12 * batch_size]
        for index in order.split(batch_size):
            found = images.batch(index, epoch=2)
            assert same(found, [None if each is None else each[index] for each in whole])
    mask = torch.arange(len(images)) % 7 == 3
    for one, other in (
        (slice(2, 19, 3), torch.arange(2, 19, 3)),
        (slice(-3, None), torch.arange(len(images) - 3, len(images))),
        (torch.tensor([-1, -len(images)]), torch.tensor([len(images) - 1, 0])),
        (mask, mask.nonzero()[:, 0]),
    ):
        assert same(images.batch(one, 2), images.batch(other, 2))


@pytest.mark.parametrize("name", SETS)
def test_epochs_are_drawn_anew_or_the_same(name: str) -> None:
    images = made(name)
    first, later = (images.batch(slice(None), epoch) for epoch in (0, 5))
    assert same(first, later) == (name in SAME_IN_EVERY_EPOCH)


@pytest.mark.parametrize("name", DRAWN)
def test_the_seed_decides_what_is_drawn(name: str) -> None:
    one, again, other = (
        made(name, seed=seed).batch(slice(None), epoch=3).pixels for seed in (4, 4, 5)
    )
    assert torch.equal(one, again)
    assert (one != other).flatten(1).any(1).float().mean() > 0.8


@pytest.mark.parametrize("name", SETS)
def test_a_set_says_what_it_is_made_of(name: str) -> None:
    images = made(name).to("cpu")
    pixels, labels, parts = images.batch(slice(None))
    assert pixels.dtype == torch.float32
    assert labels.dtype == torch.int64
    assert labels.max() < len(images.class_names)
    assert (parts is not None) == (labels.ndim > 1)
    # Pixels of lit images may leave their range.
    assert "light" in name or (pixels.min() >= 0 and pixels.max() <= 1) or name == "numbers"
    if name != "numbers":
        assert images.class_names == ("a", "b", "c")
        assert images.name.endswith("noise")
        known = getattr(images, "labels", None)
        assert known is None or torch.equal(known, labels)


@pytest.mark.parametrize("name", SETS)
def test_a_part_is_held_out_by_the_seed_and_is_of_its_kind(name: str) -> None:
    images = made(name)
    if name == "some expanded":
        # Expanded once: an image of its own each.
        assert len(images) == 20
    rest, held = images.hold_out(share=0.25, seed=4)
    assert (len(rest), len(held)) == (len(images) * 3 // 4, len(images) // 4)
    again = images.hold_out(share=0.25, seed=4)
    assert [each.digest() for each in again] == [rest.digest(), held.digest()]
    assert images.hold_out(share=0.25, seed=5)[0].digest() != rest.digest()
    for part in (rest, held):
        assert type(part) is type(images)
        assert (part.name, part.class_names, part.judged_by, part.image_shape) == (
            *(images.name, images.class_names, images.judged_by, images.image_shape),
        )


def test_a_digest_tells_of_every_image_and_knob() -> None:
    digests = {name: made(name).digest() for name in SETS}
    assert all(len(digest) == 12 for digest in digests.values())
    shared = [(a, b) for a, b in combinations(digests, 2) if digests[a] == digests[b]]
    assert shared == []
    base = noise(40)
    other = replace(base, images=base.images.clone())
    assert all(SETS[name](other, 3).digest() == SETS[name](base, 3).digest() for name in SETS)
    other.images[7, 0, 3, 3] ^= 1
    same_still = [
        name for name in SETS if SETS[name](other, 3).digest() == SETS[name](base, 3).digest()
    ]
    assert same_still == ["numbers"]
    seeds = [name for name in DRAWN if made(name, seed=4).digest() == digests[name]]
    assert seeds == []


@pytest.mark.parametrize("name", SETS)
def test_an_item_is_an_image_and_its_label(name: str) -> None:
    images = made(name)
    assert isinstance(images, Dataset)
    pixels, labels, _ = images.batch(slice(None))
    for at in (0, 7, 19, -1):
        image, label = images[at]
        assert torch.equal(image, pixels[at])
        assert torch.equal(torch.as_tensor(label), labels[at])
        assert isinstance(label, int) == (labels.ndim == 1)
    assert len(list(images)) == len(images)


@pytest.mark.parametrize("name", ["memory", "expanded", "multi", "numbers", "some"])
def test_a_loader_gives_what_a_batch_gives(name: str) -> None:
    images = made(name)
    pixels, labels, _ = images.batch(slice(None))
    order = []
    for image, label in DataLoader(images, batch_size=6, shuffle=True):
        found = [int((pixels == each).flatten(1).all(1).nonzero()[0]) for each in image]
        assert torch.equal(label, labels[found])
        order += found
    assert order != sorted(order)
    assert sorted(order) == list(range(len(images)))


@pytest.mark.parametrize("name", ["memory", "multi", "expanded", "shift2"])
def test_items_are_those_of_the_epoch_that_was_set(name: str) -> None:
    images = made(name)
    digest = images.digest()
    first = torch.stack([image for image, _ in images])
    images.set_epoch(3)
    third = torch.stack([image for image, _ in images])
    assert torch.equal(third, images.batch(slice(None), epoch=3).pixels)
    assert torch.equal(first, third) == (name in SAME_IN_EVERY_EPOCH)
    assert images.digest() == digest
    images.set_epoch(0)
    assert torch.equal(torch.stack([image for image, _ in images]), first)


def test_workers_give_the_epoch_that_was_set():
    images = made("expanded")
    images.set_epoch(2)
    (batch,) = DataLoader(images, batch_size=40, num_workers=1)
    assert torch.equal(batch[0], images.batch(slice(None), epoch=2).pixels)


def test_a_set_can_be_read_as_any_dataset():
    plain = noise(6)
    read = from_dataset(plain, plain.class_names)
    assert torch.equal(read.images, plain.pixels(slice(None)))
    assert torch.equal(read.labels, plain.labels)


def test_a_loop_over_the_images_ends():
    with pytest.raises(IndexError, match="there are 20 images, and none has the number 20"):
        noise()[20]
