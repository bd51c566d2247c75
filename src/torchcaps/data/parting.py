"""How a set is parted so that no group of images is: whole groups go to one part or another, and
classes keep their shares as far as that allows.

The groups stand in an order that the seed and their names decide, and the order is cut where the
shares are full. Then one group at a time is moved, always the one whose move brings the shares of
the classes nearest to those asked for, until no move does.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from torchcaps.errors import TorchcapsError, short

Files = list[tuple[Path, int]]

# Moves that bring less are rounding, which is not the same on every machine.
DIGITS = 9
# Orders to begin with, as long as some class is missing at the end.
TRIES = 20


def two_parts(
    name: str,
    groups: Sequence[str],
    labels: ArrayLike,
    class_names: Sequence[str],
    *,
    share: float,
    seed: int,
    both: bool,
) -> NDArray[np.bool_]:
    """Choose which images are held out, about `share` of each class and whole groups only, bool
    [n]; with `both` what is held out must show every class, as the rest must in any case. `name` is
    that of the set, for sentences."""
    labels = np.asarray(labels)
    for label in sorted(set(labels.tolist())) if both else ():
        within = {group for group, of in zip(groups, labels, strict=True) if of == label}
        if len(within) == 1:
            raise TorchcapsError(
                f"{name}: all images of class {class_names[label]!r} are of one group, "
                f"{short(within.pop())}, and no group may be in training and in the test; add "
                f"images of another group, or leave the class out."
            )
    if (count := len(set(groups))) == 1:
        raise TorchcapsError(
            f"{name}: all images are of one group, {short(groups[0])}, and nothing can be held out "
            f"of it; add images of another group, or name finer groups."
        )
    part = part_by_groups(
        groups, labels, (1 - share, share), all_classes_in=(True, both), seed=seed
    )
    for number, where in ((0, "to train on"), (1, "in the test" if both else "held out")):
        shown = set(labels[part == number].tolist())
        lacking = set(labels.tolist()) - shown if number == 0 or both else set()
        if lacking or not shown:
            what = f"images of class {class_names[min(lacking)]!r}" if lacking else "any images"
            raise TorchcapsError(
                f"{name}: no way was found to part its {count} groups that leaves {what} {where}; "
                f"add images of other groups, or name finer ones."
            )
    held: NDArray[np.bool_] = part == 1
    return held


def part_by_groups(
    groups: Sequence[str],
    labels: ArrayLike,
    shares: Sequence[float],
    *,
    all_classes_in: Sequence[bool],
    seed: int,
) -> NDArray[np.intp]:
    """Number the part that each image goes to, [n]: one for all images of a group, and of every
    class each part has about its share: of `shares` above 0 the sum is 1, and `all_classes_in` says
    which parts should have every class, if that can be. It depends on the seed and on the names of
    the groups, and not on the order of the images."""
    _, kinds = np.unique(labels, return_inverse=True)
    for attempt in range(TRIES):
        of_seed = f"{seed}/{attempt}"
        names = sorted(set(groups), key=lambda group: _draw(of_seed, group))
        number = {group: at for at, group in enumerate(names)}
        group_of = np.array([number[group] for group in groups])
        counts = np.zeros((len(names), kinds.max() + 1))
        np.add.at(counts, (group_of, kinds.reshape(-1)), 1)
        part, complete = _parted(counts, np.array(shares), np.array(all_classes_in))
        if complete:
            break
    numbers: NDArray[np.intp] = part[group_of]
    return numbers


def _parted(
    counts: NDArray[np.float64], shares: NDArray[np.float64], all_classes_in: NDArray[np.bool_]
) -> tuple[NDArray[np.intp], bool]:
    """Return the part of each group [g], and whether no part lacks what it should have.

    counts: how many images of each class a group has, [g, k].
    """
    sizes = counts.sum(1)
    middles = (sizes.cumsum() - sizes / 2) / sizes.sum()
    part = np.searchsorted(shares.cumsum()[:-1], middles)
    weight = counts / counts.sum(0)  # of each class its share, [g, k]
    square = (weight**2).sum(1, keepdims=True)
    # A column more: no part may be empty.
    holds = np.pad(counts > 0, ((0, 0), (0, 1)), constant_values=True).astype(float)
    needed = np.repeat(all_classes_in[:, None], holds.shape[1], 1)
    needed[:, -1] = True
    everyone = np.arange(len(part))
    while True:
        is_in = part[:, None] == np.arange(len(shares))  # [g, p]
        beyond = is_in.T @ weight - shares[:, None]  # [p, k]
        there = is_in.T @ holds
        lost = (holds * (needed & (there == 1))[part]).sum(1, keepdims=True)
        gained = holds @ (needed & (there == 0)).T
        # How much the sum of beyond²/share, over parts and classes, changes when a group moves.
        change = (2 * weight @ beyond.T + square) / shares
        change += ((square[:, 0] - 2 * (weight * beyond[part]).sum(1)) / shares[part])[:, None]
        # What is lacking comes first.
        change = np.round(change + 1e6 * (lost - gained), DIGITS)
        change[everyone, part] = 0
        group, to = np.unravel_index(change.argmin(), change.shape)
        if change[group, to] >= 0:
            return part, not bool((needed & (there == 0)).any())
        part[group] = to


def drawn(
    name: str,
    class_names: tuple[str, ...],
    files: Files,
    groups: Sequence[str] | None,
    share: float,
    seed: int,
) -> NDArray[np.bool_]:
    """Choose the pictures that are the test, bool [n]."""
    labels = [label for _, label in files]
    if groups is not None:
        return two_parts(name, groups, labels, class_names, share=share, seed=seed, both=True)
    of_classes = [[path for path, k in files if k == label] for label in range(len(class_names))]
    test = {
        path
        for called, pictures in zip(class_names, of_classes, strict=True)
        for path in drawn_share(called, pictures, "test", share, seed)
    }
    return np.array([path in test for path, _ in files])


def drawn_share(
    name: str, pictures: list[Path], split: str, test_share: float, seed: int
) -> list[Path]:
    """Choose the pictures of the class `name` that are its test, or the rest."""
    if len(pictures) < 2:
        raise TorchcapsError(
            f"{pictures[0].parent} holds one picture; train and test need at least one each."
        )
    count = min(max(1, round(test_share * len(pictures))), len(pictures) - 1)
    drawn = sorted(pictures, key=lambda path: _draw(f"{seed}/{name}", path.name))[:count]
    return sorted(drawn) if split == "test" else sorted(set(pictures) - set(drawn))


def _draw(of: str, name: str) -> bytes:
    """Give a place in an order at random, the same on every machine."""
    return hashlib.sha256(f"{of}/{name}".encode("utf-8", "surrogateescape")).digest()
