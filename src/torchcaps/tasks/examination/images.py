"""What a network is given: pixels, classes, images that are held out, and groups of images."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from torch import Tensor

from torchcaps.data import Images, sample_of
from torchcaps.data.read.grouping import told_of_folder
from torchcaps.data.sample import present_classes
from torchcaps.errors import TorchcapsError
from torchcaps.tasks.examination.diagnosis import Diagnosis
from torchcaps.tasks.overlap import MOST_COMPARED, marks
from torchcaps.train.images import parted
from torchcaps.train.recipe import Recipe

PIXELS_OF, LABELS_OF = 1_000, 10_000
# The most frequent class may have so many times the images of the rarest.
UNEVEN = 5


def examine_images(
    recipe: Recipe, training: Images, load_test: Callable[[], Images]
) -> list[Diagnosis]:
    """Examine pixels, classes and images held out; `load_test` may fail: better now than later."""
    pixels = training.batch(sample_of(training, PIXELS_OF)).pixels
    labels = training.batch(sample_of(training, LABELS_OF)).labels
    return [
        _range(pixels),
        _balance(labels, training.class_names),
        *_apart(recipe, training, load_test),
    ]


def _range(pixels: Tensor) -> Diagnosis:
    if not bool(pixels.isfinite().all()):
        text = (
            "some pixels are NaN or infinite, and nothing can be learnt from them; look for a "
            "division by zero where the images are prepared."
        )
        return Diagnosis("pixels", "broken", text)
    low, high = float(pixels.min()), float(pixels.max())
    mean, std = float(pixels.mean()), float(pixels.std(correction=0))
    numbers = {"low": low, "high": high, "mean": mean, "std": std}
    facts = f"from {low:.3g} to {high:.3g}, mean {mean:.3g}, standard deviation {std:.3g}"
    if high > 2:
        text = (
            f"{facts}: the networks take floats in [0, 1], and at this scale poses saturate and "
            f"the reconstruction drowns all else; divide bytes by 255."
        )
        return Diagnosis("pixels", "broken", text, numbers)
    if len(pixels) > 1 and bool((pixels == pixels[0]).all()):
        text = f"{facts}: every image is the same, so there is nothing to learn; is the path right?"
        return Diagnosis("pixels", "broken", text, numbers)
    if low < -1e-3 or high > 1 + 1e-3:
        text = (
            f"{facts}: the networks take floats in [0, 1], which is all that a decoder can draw; "
            f"leave out the normalisation by mean and standard deviation."
        )
        return Diagnosis("pixels", "look", text, numbers)
    if high < 0.1:
        text = f"{facts}: all images are nearly black; were they divided by 255 twice?"
        return Diagnosis("pixels", "look", text, numbers)
    return Diagnosis("pixels", "fine", f"{facts}; in [0, 1], as it should be.", numbers)


def _balance(labels: Tensor, class_names: tuple[str, ...]) -> Diagnosis:
    counts = present_classes(labels, len(class_names)).sum(0)
    most, least = int(counts.argmax()), int(counts.argmin())
    high, low = int(counts[most]), int(counts[least])
    numbers = {"images": len(labels), "counts": counts.tolist()}
    there, looked_at = int((counts > 0).sum()), f"of {len(labels):,} images looked at"
    if there == 1:
        text = (
            f"all {looked_at} are {class_names[most]!r}: there is nothing to tell apart; are the "
            f"labels read right?"
        )
        return Diagnosis("classes", "broken", text, numbers)
    if there < len(class_names):
        missing = [
            name for name, count in zip(class_names, counts.tolist(), strict=True) if not count
        ]
        shown = ", ".join(map(repr, missing[:3])) + (", …" if len(missing) > 3 else "")
        text = (
            f"{len(missing)} of {len(class_names)} classes have no image {looked_at} ({shown}); "
            f"they cannot be learnt."
        )
        return Diagnosis("classes", "look", text, numbers)
    if low == high:
        text = f"{low:,} images of every class {looked_at}."
        return Diagnosis("classes", "fine", text, numbers)
    span = f"{low:,} ({class_names[least]}) to {high:,} ({class_names[most]})"
    facts = f"{span} images a class {looked_at}"
    if high > UNEVEN * low:
        text = (
            f"{facts}: uneven, so read accuracy class by class (torchcaps eval), for always saying "
            f"{class_names[most]!r} is right for {high / len(labels):.0%}."
        )
        return Diagnosis("classes", "look", text, numbers)
    return Diagnosis("classes", "fine", f"{facts}.", numbers)


def _apart(
    recipe: Recipe, training: Images, load_test: Callable[[], Images]
) -> Iterator[Diagnosis]:
    """Say whether validation and test images are others than the training images."""
    try:
        trained_on, held = parted(recipe, training)
    except TorchcapsError as error:
        text = f"none can be held out, and training would end with that: {error}"
        yield Diagnosis("validation images", "broken", text)
        trained_on, held = training, None
    known = None if len(training) > MOST_COMPARED else set(marks(trained_on))
    if held is not None and known is not None:
        found = marks(held)
        mend = "the training set holds images more than once, so take their copies out of it"
        yield _compared("validation images", found, known, mend)
        known.update(found)
    yield _test(training, load_test, known)


def _test(training: Images, load_test: Callable[[], Images], known: set[bytes] | None) -> Diagnosis:
    try:
        test = load_test()
    except (TorchcapsError, OSError) as error:
        text = f"they cannot be read, and training would end with that: {error}"
        return Diagnosis("test images", "broken", text)
    if test.image_shape != training.image_shape or test.class_names != training.class_names:
        text = (
            f"images {test.image_shape} of {len(test.class_names)} classes, while the training "
            f"images are {training.image_shape} of {len(training.class_names)}, or their names "
            f"differ; both must be one data set."
        )
        return Diagnosis("test images", "broken", text)
    if known is None:
        text = (
            f"{len(test):,}; they were not looked for among {len(training):,} training images, "
            f"which would take hours."
        )
        return Diagnosis("test images", "fine", text, {"images": len(test)})
    return _compared("test images", marks(test), known, "take them out of one of the two")


def _compared(check: str, found: list[bytes], known: set[bytes], mend: str) -> Diagnosis:
    """Say how many of the images, by their marks, are known to be training images."""
    seen = sum(mark in known for mark in found)
    numbers = {"images": len(found), "in_training": seen}
    if seen:
        text = (
            f"{seen:,} of {len(found):,} are among the training images, pixel for pixel; what is "
            f"right about them proves nothing: {mend}."
        )
        return Diagnosis(check, "look", text, numbers)
    return Diagnosis(
        check, "fine", f"none of {len(found):,} is among the training images.", numbers
    )


def examine_groups(recipe: Recipe, root: Path | None) -> list[Diagnosis]:
    """Say how the groups of a folder of pictures are parted; nothing where names suggest none."""
    if recipe.data != "folder" or root is None:
        return []
    try:
        kept_apart, hint = told_of_folder(root, recipe.groups, recipe.fold)
    except TorchcapsError:
        # `_test` has said already that the test images cannot be read.
        return []
    if kept_apart is not None:
        return [Diagnosis("groups", "fine", f"{kept_apart}.")]
    if hint is not None:
        return [Diagnosis("groups", "look", f"{hint.text()}.", asdict(hint))]
    return []
