"""Every image is tested in one fold, and no group is trained on and tested in the same one."""

import pytest
import torch

from torchcaps.data import ImageSet, folds


def images(labels: list[int], groups: list[str] | None = None) -> ImageSet:
    """Image n is of brightness n / 64 all over."""
    pixels = (torch.arange(len(labels)) / 64).view(-1, 1, 1, 1).expand(-1, 1, 2, 2).clone()
    named = None if groups is None else tuple(groups)
    return ImageSet("mine", pixels, torch.tensor(labels), ("a", "b"), groups=named)


def numbers(found: ImageSet) -> list[int]:
    return (64 * found.images[:, 0, 0, 0]).int().tolist()


GROUPS = [f"p{number // 3}" for number in range(60)]


@pytest.mark.parametrize("groups", [None, GROUPS])
def test_every_image_is_tested_once_and_classes_are_even(groups) -> None:
    whole = images([number // 30 for number in range(60)], groups)
    parts = folds(whole, 5)
    assert sorted(at for _, test in parts for at in numbers(test)) == list(range(60))
    for train, test in parts:
        assert sorted(numbers(train) + numbers(test)) == list(range(60))
        assert test.labels.bincount().tolist() == [6, 6]
        assert groups is None or not set(train.groups) & set(test.groups)


@pytest.mark.parametrize("groups", [None, GROUPS])
def test_the_seed_draws_them(groups) -> None:
    whole = images([number // 30 for number in range(60)], groups)
    first, again, other = (numbers(folds(whole, seed=seed)[0][1]) for seed in (0, 0, 1))
    assert first == again != other


def test_folds_that_can_be_had_are_had() -> None:
    """As many groups of the rare class as folds, and half of its groups show the other one too."""
    groups = [f"p{number}" for number in range(20) for _ in range(3)]
    labels = [
        int(number < 5 and (number % 2 == 0 or at > 0)) for number in range(20) for at in range(3)
    ]
    for _, test in folds(images(labels, groups), 5):
        assert len(set(test.labels.tolist())) == 2
