"""Parting by groups: no group is parted, every class keeps its share, and names alone decide."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from torchcaps.data import Cropped, ImageSet, some_of
from torchcaps.data.parting import part_by_groups

NAMES = ("benign", "malignant")


def patients(seed: int, *, count: int = 40, mixed: bool = False):
    """Groups of 1 to 12 images, each of one class or of several, and the labels."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 13, count)
    groups = [f"p{number:03}" for number, size in enumerate(sizes) for _ in range(size)]
    one_each = np.repeat(rng.integers(0, 2, count), sizes)
    return groups, rng.integers(0, 2, len(groups)) if mixed else one_each


def parted(groups, labels, *, seed: int = 0, shares=(0.8, 0.2)):
    return part_by_groups(groups, labels, shares, all_classes_in=[True] * len(shares), seed=seed)


def beyond(part, labels, shares) -> float:
    """By how many images of a class a part differs from its share, at most."""
    return max(
        abs(np.sum((part == number) & (labels == label)) - share * np.sum(labels == label))
        for number, share in enumerate(shares)
        for label in (0, 1)
    )


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("shares", [(0.8, 0.2), (0.9, 0.1), (0.25,) * 4])
def test_every_group_lies_in_one_part_and_classes_keep_their_shares(shares, mixed: bool) -> None:
    for seed in range(10):
        groups, labels = patients(seed, mixed=mixed)
        part = parted(groups, labels, seed=seed, shares=shares)
        assert part.shape == labels.shape
        assert len(set(zip(groups, part.tolist(), strict=True))) == len(set(groups)) == 40
        largest = max(groups.count(group) for group in set(groups))
        assert beyond(part, labels, shares) <= largest


def test_shares_that_whole_groups_can_have_are_met() -> None:
    # Ten patients of each class with three pictures each: two of them are a fifth.
    groups = [f"p{number // 3}" for number in range(60)]
    labels = np.arange(60) // 30
    for seed in range(20):
        assert beyond(parted(groups, labels, seed=seed), labels, (0.8, 0.2)) == 0


def test_names_and_seed_alone_decide_and_not_the_order_of_images() -> None:
    groups, labels = patients(1)
    order = np.random.default_rng(5).permutation(len(groups))
    where = dict(zip(groups, parted(groups, labels).tolist(), strict=True))
    shuffled = [groups[at] for at in order]
    there = parted(shuffled, labels[order]).tolist()
    assert dict(zip(shuffled, there, strict=True)) == where
    assert len({tuple(parted(groups, labels, seed=seed)) for seed in range(20)}) == 20


def test_it_is_the_same_on_every_machine() -> None:
    groups = [name for name in "abcdefghij" for _ in range(4)]
    part = parted(groups, np.arange(40) % 2, shares=(0.5, 0.5))
    assert sorted({group for group, at in zip(groups, part, strict=True) if at}) == list("abfgh")


def test_a_part_lacks_no_class_that_it_could_have() -> None:
    # Of the rare class, three groups of one image: a tenth of them would be none.
    groups = [f"p{number}" for number in range(103)]
    labels = np.array([0] * 100 + [1] * 3)
    for seed in range(10):
        part = parted(groups, labels, seed=seed, shares=(0.9, 0.1))
        assert np.bincount(part[labels == 1], minlength=2).tolist() == [2, 1]


@pytest.mark.slow  # to import scikit-learn takes seconds
def test_it_is_about_as_even_as_scikit_learn() -> None:
    split = pytest.importorskip("sklearn.model_selection").StratifiedGroupKFold
    ours, theirs = [], []
    for seed in range(10):
        groups, labels = patients(seed, count=60)
        shares = (0.2,) * 5
        ours.append(beyond(parted(groups, labels, seed=seed, shares=shares), labels, shares))
        part = np.zeros(len(labels), int)
        folds = split(5, shuffle=True, random_state=seed)
        for fold, (_, test) in enumerate(folds.split(labels, labels, groups)):
            part[test] = fold
        theirs.append(beyond(part, labels, shares))
    # Of about 40 images of a class in a fold.
    assert np.mean(ours) <= np.mean(theirs) + 1


def grouped(groups: list[str], labels: list[int]) -> ImageSet:
    pixels = (torch.arange(len(groups)) / 256).view(-1, 1, 1, 1).expand(-1, 1, 4, 4).clone()
    return ImageSet("mine", pixels, torch.tensor(labels), NAMES, groups=tuple(groups))


@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: Cropped(x, (2, 2)), lambda x: some_of(x, 150)]
)
def test_hold_out_keeps_groups_together(view) -> None:
    groups, labels = patients(3)
    whole = view(grouped(groups, labels.tolist()))
    rest, held = whole.hold_out(share=0.1, seed=4)
    assert len(rest) + len(held) == len(whole)
    assert not set(rest.groups) & set(held.groups)
    assert set(rest.groups) | set(held.groups) == set(whole.groups)
    assert 0.05 < len(held) / len(whole) < 0.15
    again = whole.hold_out(share=0.1, seed=4)[1]
    assert held.groups == again.groups != whole.hold_out(share=0.1, seed=5)[1].groups


def test_sets_without_groups_are_held_out_as_ever() -> None:
    groups, labels = patients(3)
    plain = replace(grouped(groups, labels.tolist()), groups=None)
    _, held = plain.hold_out(share=0.1, seed=4)
    order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(4))
    assert torch.equal(held.images, plain.images[order[: len(held)]])


def test_the_only_group_of_a_class_is_trained_on() -> None:
    images = grouped(["a", "a", "b", "b", "c", "c"], [0, 0, 0, 0, 1, 1])
    for seed in range(10):
        rest, held = images.hold_out(share=0.4, seed=seed)
        assert (set(rest.labels.tolist()), len(held)) == ({0, 1}, 2)
