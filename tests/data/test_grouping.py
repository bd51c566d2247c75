"""What names of pictures suggest, where they do and where they do not, and how groups are told."""

import shlex

import pytest

from torchcaps.data.groups import groups_of_files
from torchcaps.data.read.grouping import PATTERNS, how_parted, suggested
from torchcaps.data.read.listed import Listed


def sides(files: list[str]) -> tuple[list[str], list[str]]:
    """Every fifth picture is tested, as a draw without regard to groups would have it."""
    return [file for at, file in enumerate(files) if at % 5], files[::5]


def named(name: str, groups: int, each: int, kinds: str = "ab") -> list[str]:
    return [
        f"{kinds[g % len(kinds)]}/" + name.format(g=g, k=k, c=kinds[g % len(kinds)])
        for g in range(groups)
        for k in range(each)
    ]


TUMOURS = [
    f"benign/SOB_B_A-14-{patient}AB-{zoom}-{number:03}.png"
    for patient in range(1000, 1020)
    for zoom in (40, 100)
    for number in range(3)
]


@pytest.mark.parametrize(
    ("files", "example", "count", "pattern"),
    [
        (named("p{g:03}_{k}.png", 20, 3), "p000", 12, "(p[0-9]+)_"),
        (named("{g}_{k}.left.jpeg", 20, 3), "0", 12, "([0-9]+)_"),
        (named("patient {g} ({k}).JPG", 20, 3), "patient 0", 12, r"(patient\ [0-9]+)\ "),
        (
            named("person{g}_bacteria_{k}.jpeg", 20, 3),
            "person0_bacteria",
            12,
            "(person[0-9]+_bacteria)_",
        ),
        (named("eye-{g}-{k}.tif", 20, 2), "eye-0", 8, r"(eye\-[0-9]+)\-"),
        (named("{c}{g}_{k}.png", 20, 3), "a0", 12, "([^/]+)_[^/]+$"),
        (named("{c}{g}_{k}_x.png", 20, 3), "a0", 12, PATTERNS[1]),
        # The patient, and not one of the two magnifications.
        (TUMOURS, "SOB_B_A-14-1000AB", 20, r"(SOB_B_A\-[0-9]+\-[0-9]+AB)\-"),
        # Quoted for a shell, as it must be.
        (named("O'Neil{g}_{k}.png", 20, 3), "O'Neil0", 12, "(O'Neil[0-9]+)_"),
    ],
)
def test_names_of_patients_suggest_groups(tmp_path, files, example, count: int, pattern) -> None:
    training, test = sides(files)
    found = suggested(training, test, 2)
    assert (found.example, found.both, found.test) == (example, count, count)
    assert f"if names as {example!r} tell" in found.text()
    # As somebody pastes it.
    (pasted,) = shlex.split(found.text().partition("--groups ")[2])
    assert pasted == found.pattern == pattern
    groups = groups_of_files(tmp_path, files, pasted)
    assert {groups[file] for file in training} & {groups[file] for file in test}
    assert example in groups.values()


@pytest.mark.parametrize(
    ("files", "n_classes"),
    [
        (named("{g:04}.png", 100, 1), 2),
        (named("{k:04}.png", 2, 100), 2),
        (named("{c}_{g:03}.png", 100, 1), 2),
        (named("{c}.{g}.jpg", 100, 1), 2),
        (named("{c} ({g}).png", 100, 1), 2),
        (named("IMG_{g:04}.JPG", 100, 1), 2),
        (named("{g:05}_{c}.png", 100, 1, "0123456789"), 10),
        (named("{c}_{g:05}.png", 100, 1, "0123456789"), 10),
        (named("{c}_s_{g:06}.png", 100, 1, [f"plane{x}" for x in "abcdefghijklmn"]), 2),
        (named("n{c}_{g}.JPEG", 100, 1, "0123456789") + named("val_{g}.JPEG", 100, 1), 10),
        # Every group has one picture, or the pictures of one are on one side.
        (named("p{g}_0.png", 100, 1), 2),
        (["b/0.png", *named("p_{k}.png", 20, 3)], 2),
    ],
)
def test_names_of_kinds_and_numbers_suggest_none(files: list[str], n_classes: int) -> None:
    assert suggested(*sides(files), n_classes) is None


def test_groups_that_are_not_parted_are_no_alarm() -> None:
    files = named("p{g:03}_{k}.png", 20, 3)
    assert suggested(files[:45], files[45:], 2) is None
    one = suggested(files[:46], files[46:], 2)
    assert (one.example, one.both, one.test) == ("p015", 1, 5)
    assert suggested([], [], 2) is None


def test_how_even_the_classes_are_is_told() -> None:
    names = ("benign", "malignant")
    training = Listed(names, (), [0, 0, 0, 1], ("a", "a", "b", "c"), [])
    test = Listed(names, (), [0, 1], ("d", "d"), [])
    assert how_parted(training, test, "(p[0-9]+)_") == (
        "parted by 4 groups of '(p[0-9]+)_': 3 in training, 1 in the test, none in both; as even "
        "as whole groups allow, the test has 25% of benign, 50% of malignant"
    )
    many = tuple("abcdef")
    training = Listed(many, (), [*range(6), 0, 0], tuple("12345678"), [])
    test = Listed(many, (), [*range(6)], tuple("abcdef"), [])
    assert how_parted(training, test).endswith("the test has 25% to 50% of each class")
