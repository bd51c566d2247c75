"""DiverseMultiMNIST: one digit or two, as often as the paper says, always new ones."""

import torch

from torchcaps.data import ImageSet, augmented
from torchcaps.data.make.multi_mnist import DiverseMultiMnist
from torchcaps.data.registry import data_set
from torchcaps.train import make_recipe
from torchcaps_claims import find_claim


def blocks(count: int = 60) -> ImageSet:
    """A block of one level each, which tells the image."""
    images = torch.zeros(count, 1, 3, 3, dtype=torch.uint8)
    images[:, :, 1, 1] = torch.arange(1, count + 1, dtype=torch.uint8)[:, None]
    return ImageSet("blocks", images, torch.arange(count) % 4, tuple("abcd"))


def levels(planes):
    return (planes.flatten(2).amax(2) * 255).round().long() - 1


def chi_square(counts, expected) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def test_one_image_in_six_shows_a_single_digit() -> None:
    batch = DiverseMultiMnist(blocks(), copies=1000).batch(slice(None))
    assert batch.labels.shape == (60_000, 2)
    ink = (batch.pixels > 0).flatten(1).sum(1)
    single = batch.labels[:, 0] == batch.labels[:, 1]
    counts = torch.bincount(single.long()).double()
    # One degree: beyond 10.8 once in a thousand.
    assert chi_square(counts, torch.tensor([50_000.0, 10_000.0])) < 10.8
    # Told from the pixels alone: a single digit is one dot, two are two but where they meet.
    assert (ink[single] == 1).all()
    meet = (ink[~single] == 1).double().mean()
    assert abs(meet - 1 / 81) < 4 * (1 / 81 / 50_000) ** 0.5
    assert (ink[~single] <= 2).all()


def test_digits_and_partners_are_drawn_evenly() -> None:
    base = blocks()
    batch = DiverseMultiMnist(base, copies=1000).batch(slice(None), epoch=1)
    first, second = levels(batch.parts).unbind(1)
    assert torch.equal(base.labels[torch.stack([first, second], 1)], batch.labels)
    single = first == second
    assert torch.equal(single, batch.labels[:, 0] == batch.labels[:, 1])
    for drawn in (first, second[~single]):
        counts = torch.bincount(drawn, minlength=60).double()
        # 59 degrees: standard deviation 10.9.
        assert abs(chi_square(counts, len(drawn) / 60) - 59) < 4 * 10.9
    pairs = torch.bincount(batch.labels[~single] @ torch.tensor([4, 1]), minlength=16).double()
    assert pairs.view(4, 4).diagonal().tolist() == [0] * 4
    apart = pairs[pairs > 0]
    # Twelve pairs of classes; 11 degrees: standard deviation 4.7.
    assert abs(chi_square(apart, apart.sum() / 12) - 11) < 4 * 4.7


def test_a_single_digit_is_its_image_and_both_of_its_parts() -> None:
    images = torch.randint(0, 256, (50, 2, 5, 5), dtype=torch.uint8)
    base = ImageSet("noise", images, torch.arange(50) % 3, ("a", "b", "c"))
    batch = DiverseMultiMnist(base).batch(slice(None))
    single = batch.labels[:, 0] == batch.labels[:, 1]
    assert 0 < int(single.sum()) < 50
    first, second = batch.parts.unbind(1)
    assert torch.equal(first[single], second[single])
    assert torch.equal(batch.pixels[single], first[single])
    assert torch.equal(batch.pixels[~single], (first + second).clamp(max=1)[~single])


def test_a_set_of_digits_judges() -> None:
    images = DiverseMultiMnist(blocks())
    assert [each.judged_by for each in (images, *images.hold_out())] == ["set"] * 3
    assert augmented(images, "shift2").judged_by == "set"


def test_an_epoch_has_as_many_images_as_digits_and_no_two_are_alike() -> None:
    images = DiverseMultiMnist(blocks())
    assert (len(images), images.name) == (60, "diverse-multi-blocks")
    assert images.image_shape == (1, 11, 11)
    epochs = [images.batch(slice(None), epoch).labels for epoch in range(3)]
    assert not torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[1], epochs[2])


def test_training_takes_as_many_images_as_printed() -> None:
    """[tsai2020] App. B.2: 21 million, with those of every epoch new."""
    recipe = make_recipe(model="tsai_dmm_vector", protocol="tsai_dmm")
    assert (recipe.data, recipe.validation_share) == ("diverse-multi-mnist", 0)
    n_digits = data_set("mnist").n_train
    empty = torch.zeros(n_digits, 1, 1, 1, dtype=torch.uint8)
    digits = ImageSet("digits", empty, torch.arange(n_digits) % 10, tuple("0123456789"))
    images = DiverseMultiMnist(digits)
    assert len(images) == data_set(recipe.data).n_train == 60_000
    assert recipe.epochs * len(images) == find_claim("tsai2020-text-train-images").value
