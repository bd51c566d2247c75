"""DiverseMultiMNIST: one digit or two, as often as the paper says, always new ones."""

import torch

from laid_images import blocks, chi_square, levels, noise
from torchcaps.data import ImageSet, augmented
from torchcaps.data.make.multi_mnist import DiverseMultiMnist
from torchcaps.data.registry import data_set
from torchcaps.train import make_recipe
from torchcaps_claims import find_claim

# A dot of one level each.
BLOCKS = blocks(60, rim=1, side=3, n_classes=4)


def test_one_image_in_six_shows_a_single_digit() -> None:
    batch = DiverseMultiMnist(BLOCKS, copies=1000).batch(slice(None))
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
    batch = DiverseMultiMnist(BLOCKS, copies=1000).batch(slice(None), epoch=1)
    first, second = levels(batch.parts).unbind(1)
    assert torch.equal(BLOCKS.labels[torch.stack([first, second], 1)], batch.labels)
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
    batch = DiverseMultiMnist(noise(50, channels=2, side=5)).batch(slice(None))
    single = batch.labels[:, 0] == batch.labels[:, 1]
    assert 0 < int(single.sum()) < 50
    first, second = batch.parts.unbind(1)
    assert torch.equal(first[single], second[single])
    assert torch.equal(batch.pixels[single], first[single])
    assert torch.equal(batch.pixels[~single], (first + second).clamp(max=1)[~single])


def test_a_set_of_digits_judges() -> None:
    images = DiverseMultiMnist(BLOCKS)
    assert [each.judged_by for each in (images, *images.hold_out())] == ["set"] * 3
    assert augmented(images, "shift2").judged_by == "set"


def test_an_epoch_has_as_many_images_as_digits_and_no_two_are_alike() -> None:
    images = DiverseMultiMnist(BLOCKS)
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
