"""What is told of groups: how evenly they are parted, or that names suggest some which are not."""

import os
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from torchcaps._paths import path_of
from torchcaps.data.read.listed import Listed, listed
from torchcaps.errors import short

# A name ends in the number of the picture, or a word for it, and maybe in numbers before that:
# p012_3.png, SOB_B_A-14-22549AB-40-001.png, person1_bacteria_2.jpeg.
NUMBER, LAST = r"[-_.\s]\d+", r"[-_.\s][^-_.\s/]+\.\w+$"
PATTERNS = (f"([^/]+){NUMBER}{NUMBER}{LAST}", f"([^/]+){NUMBER}{LAST}", f"([^/]+){LAST}")
# Groups are suggested where a class has more of them than kinds of things are likely to be in it.
A_CLASS = 3
# Longer lists of classes are shortened to the range of their shares.
LISTED = 5


@dataclass(frozen=True)
class Suggested:
    """Groups that the names of pictures suggest, of which some are trained on and tested."""

    pattern: str
    # Groups of the test; how many of them are in training too; one of these.
    test: int
    both: int
    example: str

    def text(self) -> str:
        """Say what it may mean, and the pattern that parts them."""
        return (
            f"{self.both:,} of {self.test:,} groups of the test are in training too, if names as "
            f"{short(self.example)} tell pictures that belong together; what is right about them "
            f"may be memory: part them by --groups {shlex.quote(self.pattern)}"
        )


def suggested(training: Sequence[str], test: Sequence[str], n_classes: int) -> Suggested | None:
    """Say which groups the paths of pictures suggest; None where these are none, or none on both
    sides.

    Names of groups hold a number, as those of patients do and those of kinds of things do not, and
    a group has two pictures or more, on average.
    """
    files = [*training, *test]
    for pattern in PATTERNS:
        found = [match[1] for file in files if (match := re.search(pattern, file))]
        names = set(found)
        numbered = sum(any(map(str.isdecimal, name)) for name in names)
        if len(found) < len(files) or not A_CLASS * n_classes < len(names) <= len(files) / 2:
            continue
        of_test, of_training = set(found[len(training) :]), set(found[: len(training)])
        if (both := sorted(of_test & of_training)) and 2 * numbered > len(names):
            pattern = _plainest(files, found, pattern)
            return Suggested(pattern, len(of_test), len(both), both[0])
    return None


def _plainest(files: Sequence[str], found: Sequence[str], pattern: str) -> str:
    """Choose what is easiest to read of the patterns that find the same groups: the letters of the
    first with any numbers, or all that stands before the last sign."""
    after = re.escape(files[0][files[0].rindex(found[0]) + len(found[0])])
    letters = re.sub(r"\d+", "[0-9]+", re.escape(found[0]))
    for plainer in (f"({letters}){after}", f"([^/]+){after}[^/]+$"):
        matches = (re.search(plainer, file) for file in files)
        if [match and match[1] for match in matches] == list(found):
            return plainer
    return pattern


def how_parted(training: Listed, test: Listed, by: str | None = None) -> str:
    """Say how many groups lie where, and which share of each class the test has."""
    there, tested = set(training.groups or ()), set(test.groups or ())
    of_test = Counter(test.labels)
    of_both = of_test + Counter(training.labels)
    shares = {test.class_names[label]: of_test[label] / n for label, n in sorted(of_both.items())}
    if len(shares) > LISTED:
        even = f"{min(shares.values()):.0%} to {max(shares.values()):.0%} of each class"
    else:
        even = ", ".join(f"{share:.0%} of {name}" for name, share in shares.items())
    named = "" if by is None else f" of '{by}'"
    return (
        f"parted by {len(there | tested):,} groups{named}: "
        f"{len(there):,} in training, {len(tested):,} in the test, {len(there & tested) or 'none'} "
        f"in both; as even as whole groups allow, the test has {even}"
    )


def told_of_folder(
    root: str | os.PathLike[str], by: str | None, fold: tuple[int, int] | None = None
) -> tuple[str | None, Suggested | None]:
    """Say how the groups of a folder are parted, or, without any, which ones names suggest."""
    home = path_of("root", root)
    training, test = (listed(home, split, groups=by, fold=fold) for split in ("train", "test"))
    if by is not None:
        return how_parted(training, test, by), None
    return None, suggested(training.files, test.files, len(test.class_names))
