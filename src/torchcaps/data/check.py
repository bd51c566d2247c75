"""What a data set is made of, and what may make its results worth less than they seem."""

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from torchcaps.data.batch import Images
from torchcaps.data.sample import present_classes

# Images looked at together.
BLOCK = 512
# Bytes divided by 255 twice reach 0.0039.
FAINT = 1 / 128
UNEVEN = 10


@dataclass(frozen=True)
class SplitFindings:
    """One split, image for image."""

    count: int
    shape: tuple[int, int, int]  # channels, height, width
    lowest: float
    highest: float
    mean: tuple[float, ...]  # of each channel
    std: tuple[float, ...]
    # How many images show each class.
    class_counts: dict[str, int]
    blank: int  # of one value throughout
    copies: int  # the same in every pixel as an earlier one
    doubtful: int  # the same in every pixel as one with another label


@dataclass(frozen=True)
class Findings:
    """A data set: its two splits, and what they share."""

    name: str
    train: SplitFindings
    test: SplitFindings
    # Test images that are training images too, in every pixel.
    shared: int
    shared_doubtful: int  # of these, how many have another label there
    shared_example: tuple[int, int] | None  # one of these: its index in the test and the train set

    def sentences(self) -> list[str]:
        """Put all of it into words, what is wrong included."""
        return [
            self._size(),
            *_pixels(self.train, "training"),
            *_pixels(self.test, "test"),
            *self._classes(),
            *_copies(self.train, "training"),
            *_copies(self.test, "test"),
            self._shared(),
        ]

    def _size(self) -> str:
        train, test = self.train, self.test
        summary = f"{self.name}: {train.count} training and {test.count} test images"
        if train.shape != test.shape:
            return (
                f"{summary}, but those are {_shape(train)} and these {_shape(test)}: no network "
                f"takes both."
            )
        return f"{summary} of {_shape(train)}; {len(train.class_counts)} classes."

    def _classes(self) -> list[str]:
        counts = self.train.class_counts
        found = [_balance(self.train, "training"), _balance(self.test, "test")]
        if list(counts) != list(self.test.class_counts):
            found.append(
                f"Training and test name different classes: {_few(list(counts))} and "
                f"{_few(list(self.test.class_counts))}."
            )
        if min(counts.values()) * UNEVEN < max(counts.values()):
            found.append(
                f"The largest class has more than {UNEVEN} times as many training images as the "
                f"smallest: accuracy says little of the small ones."
            )
        return found

    def _shared(self) -> str:
        if self.shared_example is None:
            return "No test image is among the training images."
        test, train = self.shared_example
        other = f", {self.shared_doubtful} of them with another label" * (self.shared_doubtful > 0)
        return (
            f"{self.shared} of {self.test.count} test images are among the training images"
            f"{other}; test image {test} is training image {train}: there the test measures memory."
        )


class _Seen(NamedTuple):
    findings: SplitFindings
    prints: list[bytes]  # equal when the images are
    answers: list[bytes]  # the classes of each image, a bit a class
    told: dict[bytes, set[bytes]]  # the answers that come with a print


def check_images(train: Images, test: Images) -> Findings:
    """Look at every image of two splits: range, balance, size, and images that occur twice.

    Images made on the fly are those of epoch 0.

    Arguments:
        train: the images to train on.
        test: those to be tested on.

    >>> found = check_images(train, test)
    >>> found.sentences()[-1]
    'No test image is among the training images.'
    """
    n_classes = max(len(train.class_names), len(test.class_names))
    trained, tested = _look(train, n_classes), _look(test, n_classes)
    first: dict[bytes, int] = {}
    for at, each in enumerate(trained.prints):
        first.setdefault(each, at)
    shared = [at for at, each in enumerate(tested.prints) if each in first]
    doubtful = [at for at in shared if tested.answers[at] not in trained.told[tested.prints[at]]]
    return Findings(
        train.name,
        trained.findings,
        tested.findings,
        shared=len(shared),
        shared_doubtful=len(doubtful),
        shared_example=(shared[0], first[tested.prints[shared[0]]]) if shared else None,
    )


def _look(images: Images, n_classes: int) -> _Seen:
    prints: list[bytes] = []
    answers: list[bytes] = []
    told: dict[bytes, set[bytes]] = {}
    blank, lowest, highest = 0, float("inf"), float("-inf")
    # The same bytes in another shape are another image.
    begin = hashlib.blake2b(str(images.image_shape).encode(), digest_size=16)
    total = torch.zeros(images.image_shape[0], dtype=torch.float64)
    squares, of_classes = torch.zeros_like(total), torch.zeros(n_classes, dtype=torch.int64)
    for start in range(0, len(images), BLOCK):
        pixels, labels, _ = images.batch(slice(start, min(start + BLOCK, len(images))))
        pixels, shown = pixels.cpu().contiguous(), present_classes(labels.cpu(), n_classes)
        for image, classes in zip(pixels.numpy(), np.packbits(shown.numpy(), axis=1), strict=True):
            each, answer = begin.copy(), classes.tobytes()
            each.update(image.data)
            prints.append(each.digest())
            answers.append(answer)
            told.setdefault(prints[-1], set()).add(answer)
        low, high = pixels.flatten(1).aminmax(dim=1)
        lowest, highest = min(lowest, float(low.min())), max(highest, float(high.max()))
        # One pixel has one value.
        blank += int((low == high).sum()) if pixels[0].numel() > 1 else 0
        total += pixels.sum((0, 2, 3), dtype=torch.float64)
        squares += pixels.double().square().sum((0, 2, 3))
        of_classes += shown.sum(0)
    count = len(images) * images.image_shape[1] * images.image_shape[2]
    mean = total / count
    findings = SplitFindings(
        count=len(images),
        shape=images.image_shape,
        lowest=lowest,
        highest=highest,
        mean=tuple(mean.tolist()),
        std=tuple((squares / count - mean.square()).clamp(min=0).sqrt().tolist()),
        class_counts=dict(zip(images.class_names, of_classes.tolist(), strict=False)),
        blank=blank,
        copies=len(prints) - len(told),
        doubtful=sum(len(told[each]) > 1 for each in prints),
    )
    return _Seen(findings, prints, answers, told)


def _shape(split: SplitFindings) -> str:
    channels, height, width = split.shape
    return f"{height} × {width} pixels, {channels} channel{'s' * (channels > 1)}"


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + ", …" * (len(names) > 5)


def _pixels(split: SplitFindings, which: str) -> list[str]:
    mean, std = (" ".join(f"{value:.4f}" for value in each) for each in (split.mean, split.std))
    found = [
        f"Pixels of the {which} images go from {split.lowest:g} to {split.highest:g}; mean {mean}, "
        f"standard deviation {std}."
    ]
    if split.highest <= FAINT:
        found.append(
            f"No pixel of the {which} images is brighter than {split.highest:.4f}, where white "
            f"is 1: were they divided by 255 twice?"
        )
    if split.blank:
        found.append(f"Of the {which} images, {split.blank} are one value throughout.")
    return found


def _balance(split: SplitFindings, which: str) -> str:
    counts = split.class_counts
    missing = [name for name, count in counts.items() if not count]
    if missing:
        return f"No {which} image shows {_few(missing)}."
    few, many = min(counts, key=lambda name: counts[name]), max(counts, key=lambda n: counts[n])
    if counts[few] == counts[many]:
        return f"Every class has {counts[few]} {which} image{'s' * (counts[few] > 1)}."
    return (
        f"Classes have {counts[few]} ({few}) to {counts[many]} ({many}) {which} images; a guess of "
        f"the largest class is right {counts[many] / split.count:.1%} of the time."
    )


def _copies(split: SplitFindings, which: str) -> list[str]:
    if not split.copies:
        return [f"No {which} image occurs twice."]
    found = [f"Of the {which} images, {split.copies} are copies of an earlier one."]
    if split.doubtful:
        found.append(
            f"Of the {which} images, {split.doubtful} occur with more than one label: not all of "
            f"these are right."
        )
    return found
