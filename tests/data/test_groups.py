"""Groups of a folder of pictures: read of names or of a table, and never parted."""

import re
from collections import Counter
from pathlib import Path

import pytest

from error_text import text_of
from laid_pictures import patients
from torchcaps.data import folds, image_folder, load
from torchcaps.data.groups import groups_of_files

PATTERN = "(p[0-9]+)_"
SPLITS = ("train", "test")


def table(root: Path, text: str) -> Path:
    path = root / "patients.csv"
    path.write_text(text)
    return path


def rows(root: Path, *, bare: bool) -> list[str]:
    return [
        f"{path.name if bare else path.relative_to(root)},{path.name[:4]}"
        for path in sorted(root.glob("*/*.png"))
    ]


def test_the_test_takes_all_pictures_of_a_group_or_none(tmp_path: Path) -> None:
    root = patients(tmp_path / "skin")
    train, test = (image_folder(root, split, groups=PATTERN) for split in ("train", "test"))
    assert (len(train), len(test)) == (24, 6)
    assert sorted(train.files + test.files) == sorted(
        path.relative_to(root).as_posix() for path in root.glob("*/*.png")
    )
    for found in (train, test):
        assert found.groups == tuple(Path(file).name[:4] for file in found.files)
        assert [found.class_names[label] for label in found.labels] == [
            Path(file).parent.name for file in found.files
        ]
    assert not set(train.groups) & set(test.groups)
    # One patient of each class.
    assert test.labels.bincount().tolist() == [3, 3]
    assert test.digest() == image_folder(root, "test", groups=PATTERN).digest()
    draws = {image_folder(root, "test", groups=PATTERN, seed=seed).groups for seed in range(10)}
    assert len(draws) > 5


def test_without_groups_the_pictures_of_a_patient_are_parted(tmp_path: Path) -> None:
    root = patients(tmp_path / "skin")
    train, test = (image_folder(root, split) for split in ("train", "test"))
    assert {file[:-6] for file in train.files} & {file[:-6] for file in test.files}
    assert train.groups is None


@pytest.mark.parametrize("bare", [False, True])
def test_a_table_says_the_same_as_a_pattern(tmp_path: Path, bare: bool) -> None:
    root = patients(tmp_path / "skin")
    # As a spreadsheet writes it, with rows of other pictures and in any order.
    lines = ["\ufefffile,patient", "gone.png,", *reversed(rows(root, bare=bare))]
    path = table(root, "\n".join(lines))
    by_pattern = image_folder(root, "test", groups=PATTERN)
    for by in ("patients.csv:patient", f"{path}:patient"):
        assert image_folder(root, "test", groups=by).digest() == by_pattern.digest()


def test_a_path_wins_over_a_name(tmp_path: Path) -> None:
    files = ["a/1.png", "a/2.png"]
    table(tmp_path, "file,who\n1.png,x\na\\1.png,y\n./a/2.png,z\n")
    assert groups_of_files(tmp_path, files, "patients.csv:who") == dict(
        zip(files, "yz", strict=True)
    )


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("_([ab])", "ab"), ("[ab](?=_)|_[ab]", ["_a", "_b"]), ("_(a)|_(?:b)", None)],
)
def test_the_first_bracket_is_the_group_or_the_whole_match(tmp_path, pattern, expected) -> None:
    files = ["c/1_a.png", "c/1_b.png"]
    if expected is None:
        assert "in the path of 1 of 2 pictures, c/1_b.png for one" in text_of(
            lambda: groups_of_files(tmp_path, files, pattern)
        )
        return
    assert list(groups_of_files(tmp_path, files, pattern).values()) == list(expected)


def test_many_columns_of_a_table_are_told_in_short(tmp_path: Path) -> None:
    path = table(tmp_path, "[" * 3000)
    assert text_of(lambda: groups_of_files(tmp_path, ["a"], "patients.csv:who")) == (
        f"{path} has no column 'file'; its columns, with commas between, are: {'[' * 1000}."
    )


def test_a_name_that_breaks_its_line_is_told_in_one(tmp_path: Path) -> None:
    path = table(tmp_path, '"fi\n\nle",who')
    assert text_of(lambda: groups_of_files(tmp_path, ["a"], "patients.csv:who")) == (
        f"{path} has no column 'file'; its columns, with commas between, are: fi le, who."
    )


def test_the_pattern_that_an_error_names_reads_no_class(tmp_path: Path) -> None:
    """'([^/]+)_' took 'in' of every picture in the folder of the class in_situ."""
    said = text_of(lambda: groups_of_files(tmp_path, ["a"], "(p"))
    pattern = re.search(r"'(\S+)' takes of a name", said)[1]
    files = ["in_situ/s_p01_3.png", "in_situ/s_p02_1.png", "be_nign/p03_.png"]
    assert [*groups_of_files(tmp_path, files, pattern).values()] == ["s_p01", "s_p02", "p03"]


def test_folders_that_part_no_group_are_taken_as_they_are(tmp_path: Path) -> None:
    for number, name in enumerate(("train", "test", "val")):
        patients(tmp_path / name, 4)
        for path in (tmp_path / name).glob("*/*.png"):
            # The folder val is not read where there is a test; its groups may be anywhere.
            path.rename(path.with_name(f"{number % 2}{path.name}"))
    train, test = (image_folder(tmp_path, x, groups="([0-9]p[0-9]+)_") for x in ("train", "test"))
    assert Counter(train.groups) == {f"0p00{number}": 3 for number in range(4)}
    assert Counter(test.groups) == {f"1p00{number}": 3 for number in range(4)}


@pytest.mark.parametrize("groups", [PATTERN, None])
def test_folds_are_those_of_the_same_images_in_memory(tmp_path: Path, groups) -> None:
    root = patients(tmp_path / "skin")
    whole = image_folder(root, groups=groups, fold=(0, 5))
    assert len(whole) == 30
    for at, (train, test) in enumerate(folds(whole, 5), 1):
        by_fold = {"root": root, "groups": groups, "fold": (at, 5)}
        read = [load("folder", split=split, **by_fold) for split in SPLITS]
        assert [each.digest() for each in read] == [train.digest(), test.digest()]


def test_folds_of_a_folder_with_a_test_leave_that_alone(tmp_path: Path) -> None:
    patients(tmp_path / "skin" / "train")
    patients(tmp_path / "skin" / "test", 2)
    found = [image_folder(tmp_path / "skin", split, fold=(1, 5)) for split in SPLITS]
    assert [len(each) for each in found] == [24, 6]
    assert all(file.startswith("train/") for each in found for file in each.files)
