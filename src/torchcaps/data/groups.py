"""Which images belong together: those of one patient, of one place, of one film."""

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from torchcaps.errors import TorchcapsError, short

TABLE = re.compile(r"(.+\.csv):(.+)", re.IGNORECASE)
FILE = "file"


def check_named(by: object) -> None:
    """Refuse what is neither a regular expression nor FILE.csv:COLUMN."""
    if not isinstance(by, str):
        raise TorchcapsError(
            f"groups must be a regular expression or FILE.csv:COLUMN, but came as {short(by)}."
        )
    if TABLE.fullmatch(by):
        return
    try:
        re.compile(by)
    except (re.error, OverflowError, RecursionError) as error:
        raise TorchcapsError(
            f"groups={short(by)} is no regular expression ({error}), and no column of a table, "
            f"FILE.csv:COLUMN; '([^/]+)_[^/]*$' takes of a name what stands before its last _."
        ) from None


def groups_of_files(root: Path, files: Sequence[str], by: str) -> dict[str, str]:
    """Find the group of each file, by its path below `root`.

    by: a regular expression, whose first bracket or else whole match in that path is the group; or
        FILE.csv:COLUMN, with the path in a column `file`.
    """
    check_named(by)
    table = TABLE.fullmatch(by)
    found = _in_table(root, files, *table.groups()) if table else _matched(files, re.compile(by))
    if len(groups := set(found.values())) == 1:
        raise TorchcapsError(
            f"groups={short(by)} puts all {len(files)} pictures into one group, "
            f"{short(groups.pop())}, so nothing can be parted; bracket what tells groups apart, as "
            f"in '(p[0-9]+)_', or name another column."
        )
    return found


def _matched(files: Sequence[str], pattern: re.Pattern[str]) -> dict[str, str]:
    matches = {file: pattern.search(file) for file in files}
    # A bracket may be optional, and then is None, or match nothing, and then is empty.
    found = {file: match[min(1, pattern.groups)] for file, match in matches.items() if match}
    if without := [file for file in files if not found.get(file)]:
        raise TorchcapsError(
            f"groups={short(pattern.pattern)} finds no group in the path of {len(without)} of "
            f"{len(files)} pictures, {without[0]} for one; a pattern must match in the path of "
            f"every picture below the folder of the data."
        )
    return found


def _in_table(root: Path, files: Sequence[str], named: str, column: str) -> dict[str, str]:
    path = root / named
    group_of = _column(path, column)
    called = Counter(PurePosixPath(file).name for file in files)
    found = {}
    for file in files:
        name = PurePosixPath(file).name
        if file not in group_of and name in group_of and called[name] > 1:
            raise TorchcapsError(
                f"{path} names {name} without its folder, but {called[name]} pictures are called "
                f"so, {file} for one; write their paths below {root} in the column {FILE}."
            )
        if group := group_of.get(file) or group_of.get(name):
            found[file] = group
    if without := [file for file in files if file not in found]:
        raise TorchcapsError(
            f"{path} tells no group of {len(without)} of {len(files)} pictures, {without[0]} for "
            f"one; every picture needs a row, with its path below {root}, or its name where no "
            f"other has it, in the column {FILE}, and its group in the column {column}."
        )
    return found


def _column(path: Path, column: str) -> dict[str, str]:
    """Read the group of each file: what the table has in this column of its row."""
    if not path.is_file():
        raise TorchcapsError(
            f"there is no table {path}; FILE.csv:COLUMN is looked for in the folder of the data."
        )
    found: dict[str, str] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            table = csv.DictReader(lines)
            header = table.fieldnames or ()
            if missing := [each for each in (FILE, column) if each not in header]:
                # A name in quotes may break its line.
                names = " ".join(", ".join(header).split())
                raise TorchcapsError(
                    f"{path} has no column {missing[0]!r}; its columns, with commas between, are: "
                    f"{names[:1000]}."
                )
            for row in table:
                # A row may be short.
                file, group = ((row[each] or "").strip() for each in (FILE, column))
                file = file.replace("\\", "/").removeprefix("./")
                if found.setdefault(file, group) != group:
                    raise TorchcapsError(
                        f"{path} says that {short(file)} is of group {short(found[file])} and of "
                        f"{short(group)}; a picture has one group."
                    )
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TorchcapsError(
            f"{path} could not be read as a table ({error}); save it as CSV in UTF-8."
        ) from None
    return found


def check_apart(name: str, training: Sequence[str], test: Sequence[str]) -> None:
    """Refuse groups that are trained on and tested."""
    known = set(training)
    of_test = dict.fromkeys(test)
    if both := [group for group in of_test if group in known]:
        raise TorchcapsError(
            f"{name}: {len(both)} of the {len(of_test)} groups of the test are in training too, "
            f"{short(both[0])} for one, so the test would count what was learnt of them by heart; "
            f"give every group to one of both."
        )


def check_folders_apart(name: str, group_of: Mapping[str, str]) -> None:
    """Refuse groups in the folders train and test, or train and val where there is no test."""
    sides: dict[str, list[str]] = {"train": [], "test": [], "val": []}
    for file, group in group_of.items():
        sides[file.partition("/")[0]].append(group)
    check_apart(name, sides["train"], sides["test"] or sides["val"])


def named_groups(name: str, groups: object, count: int) -> tuple[str, ...]:
    """Return the groups of `count` images as text; refuse an image without one."""
    # Arrays, tensors and columns of a table.
    groups = groups.tolist() if hasattr(groups, "tolist") else groups
    if isinstance(groups, str | Mapping) or not isinstance(groups, Sequence):
        raise TorchcapsError(
            f"{name}: groups must be a list of names, one an image, but came as {short(groups)}."
        )
    if len(groups) != count:
        raise TorchcapsError(
            f"{name}: groups must name a group for each of {count} images, but came with "
            f"{len(groups)}."
        )
    for at, group in enumerate(groups):
        # What tables have where nobody wrote anything: None, nothing, or a NaN.
        if group is None or group != group or not str(group):
            raise TorchcapsError(
                f"{name}: image {at} has no group ({short(group)}); name the group of every image, "
                f"one of its own where an image belongs to no other."
            )
    # Numbers are names, too.
    return tuple(map(str, groups))
