"""What holds for every maker: the same image in any batch, and held-out images share nothing."""

import hashlib

import pytest
import torch

from error_text import text_of
from torchcaps.data import ImageSet, some_of
from torchcaps.data.make.affnist_style import AffnistStyle
from torchcaps.data.make.expanded import Expanded
from torchcaps.data.make.multi_mnist import DiverseMultiMnist, MultiMnist

MAKERS = [Expanded, AffnistStyle, MultiMnist, DiverseMultiMnist]
FRESH = [Expanded, AffnistStyle, DiverseMultiMnist]


def digits(count: int, side: int = 8) -> ImageSet:
    images = torch.randint(0, 256, (count, 1, side, side), dtype=torch.uint8)
    return ImageSet("noise", images, torch.arange(count) % 3, ("a", "b", "c"))


def blocks(count: int) -> ImageSet:
    """A block of one level each: the level tells which image it is."""
    images = torch.zeros(count, 1, 12, 12, dtype=torch.uint8)
    images[:, :, 2:10, 2:10] = torch.arange(1, count + 1, dtype=torch.uint8)[:, None, None, None]
    return ImageSet("blocks", images, torch.arange(count) % 5, tuple("abcde"))


def same(one, other) -> bool:
    return all(a is b is None or torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("batch_size", [1, 7, 128])
def test_an_image_is_the_same_for_any_batch(maker, batch_size: int) -> None:
    images = maker(digits(75), seed=3, copies=2)
    assert len(images) == 150
    whole = images.batch(slice(None), epoch=2)
    assert whole.pixels.shape == (150, *images.image_shape)
    assert whole.pixels.min() >= 0
    assert whole.pixels.max() <= 1
    for index in torch.randperm(150).split(batch_size):
        found = images.batch(index, epoch=2)
        expected = [None if of_all is None else of_all[index] for of_all in whole]
        assert same(found, expected)
    assert same(images.batch(slice(20, 40, 3), 2), images.batch(torch.arange(20, 40, 3), 2))


@pytest.mark.parametrize("maker", [Expanded, AffnistStyle])
def test_any_index_names_the_images_that_a_tensor_has_there(maker) -> None:
    images = maker(digits(20), copies=2)
    mask = torch.arange(40) % 7 == 3
    assert same(images.batch(mask), images.batch(mask.nonzero()[:, 0]))
    assert same(images.batch(torch.tensor([-1, -40])), images.batch(torch.tensor([39, 0])))
    assert same(images.batch(slice(-3, None)), images.batch(torch.tensor([37, 38, 39])))


@pytest.mark.parametrize("maker", MAKERS)
def test_what_a_maker_cannot_take_is_told(maker) -> None:
    said = text_of(lambda: maker(some_of(digits(20), 5)))
    assert said == (
        f"{maker.__name__} is made of images in memory, an ImageSet, but came with a Some; fewer "
        f"of them are images.take(index)."
    )


@pytest.mark.parametrize("maker", FRESH)
def test_epochs_are_drawn_anew_unless_told_otherwise(maker) -> None:
    images = maker(digits(40))
    assert not torch.equal(images.batch(slice(None), 0).pixels, images.batch(slice(None), 1).pixels)
    once = maker(digits(40), fresh=False)
    assert same(once.batch(slice(None), 0), once.batch(slice(None), 5))


@pytest.mark.parametrize("maker", MAKERS)
def test_the_seed_decides_what_is_drawn(maker) -> None:
    base = digits(40)
    assert same(maker(base, seed=4).batch(slice(None)), maker(base, seed=4).batch(slice(None)))
    one, other = (maker(base, seed=seed).batch(slice(None)).pixels for seed in (4, 5))
    assert (one != other).flatten(1).any(1).float().mean() > 0.9


@pytest.mark.parametrize("maker", [Expanded, AffnistStyle, MultiMnist])
def test_image_n_comes_of_image_n_modulo_the_base(maker) -> None:
    base = digits(10)
    labels = maker(base, copies=3).batch(slice(None)).labels
    assert torch.equal(labels.view(30, -1)[:, 0], base.labels.repeat(3))


@pytest.mark.parametrize("maker", MAKERS)
def test_training_and_validation_share_no_image_of_the_base(maker) -> None:
    rest, held = maker(blocks(100), copies=20).hold_out(share=0.3, seed=1)
    assert (len(rest), len(held)) == (1400, 600)
    seen = []
    for images in (rest, held):
        batch = images.batch(slice(None))
        alone = batch.pixels[:, None] if batch.parts is None else batch.parts
        # A block keeps its level inside, however it is moved.
        levels = (alone.flatten(2).amax(2) * 255).round().int().flatten()
        seen.append(set(levels.tolist()))
    assert seen[0].isdisjoint(seen[1])
    assert (len(seen[0]), len(seen[1])) == (70, 30)
    # The seed of what is drawn stays.
    assert rest.seed == held.seed == 0


@pytest.mark.parametrize("maker", MAKERS)
def test_the_digest_tells_of_the_base_and_of_all_knobs(maker) -> None:
    base = digits(20)
    digest = maker(base).digest()
    assert len(digest) == 12
    assert maker(base).digest() == digest
    other = ImageSet(base.name, base.images.clone(), base.labels, base.class_names)
    assert maker(other).digest() == digest
    other.images[7, 0, 3, 3] ^= 1
    changed = [maker(other), maker(base, seed=1), maker(base, copies=2), maker(base.to("cpu"))]
    assert [images.digest() == digest for images in changed] == [False, False, False, True]


def test_makers_and_their_knobs_never_share_a_digest() -> None:
    base = digits(20)
    made = [
        *(maker(base) for maker in MAKERS),
        Expanded(base, side=41),
        Expanded(base, placement="centred"),
        AffnistStyle(base, ranges="gu"),
        MultiMnist(base, overlay="max"),
        MultiMnist(base, shift=3),
        MultiMnist(base, fresh=True),
    ]
    assert len({images.digest() for images in made}) == len(made)


@pytest.mark.parametrize("maker", MAKERS)
def test_the_classes_are_those_of_the_base(maker) -> None:
    images = maker(digits(20)).to("cpu")
    assert images.class_names == ("a", "b", "c")
    assert images.name.endswith("-noise")


def test_no_copies_are_refused() -> None:
    for copies in (0, 1.5):
        assert text_of(lambda copies=copies: Expanded(digits(3), copies=copies)) == (
            f"copies must be a whole number of images from 1, but came as {copies}."
        )


@pytest.mark.parametrize(
    ("maker", "expected"),
    [
        (Expanded, "c95f4080ff59"),
        (AffnistStyle, "9416cdcef4c0"),
        (MultiMnist, "6c050eb93fd3"),
        (DiverseMultiMnist, "d48d35c45e24"),
    ],
)
def test_the_images_are_these_on_every_machine(maker, expected: str) -> None:
    ramp = (torch.arange(20 * 28 * 28) * 7919 % 256).to(torch.uint8).view(20, 1, 28, 28)
    base = ImageSet("ramp", ramp, torch.arange(20) % 3, ("a", "b", "c"))
    pixels = maker(base, copies=5).batch(slice(None)).pixels
    assert hashlib.sha256(pixels.numpy().tobytes()).hexdigest()[:12] == expected
