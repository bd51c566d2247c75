"""What names of pictures suggest, where they do and where they do not, and how groups are told."""

import shlex

import pytest

from tables import beside, worked_out
from torchcaps.data.groups import groups_of_files
from torchcaps.data.read.grouping import how_parted, suggested
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


NAMES = beside(__file__, "grouping.toml")


@pytest.mark.parametrize("name", NAMES["groups"])
def test_names_of_patients_suggest_groups(tmp_path, name):
    case = {"example": name} | NAMES["groups"][name]
    files, example, count = worked_out(case["files"], globals()), case["example"], case["count"]
    training, test = sides(files)
    found = suggested(training, test, 2)
    assert (found.example, found.both, found.test) == (example, count, count)
    assert f"if names as {example!r} tell" in found.text()
    # As somebody pastes it.
    (pasted,) = shlex.split(found.text().partition("--groups ")[2])
    assert pasted == found.pattern == case["pattern"]
    groups = groups_of_files(tmp_path, files, pasted)
    assert {groups[file] for file in training} & {groups[file] for file in test}
    assert example in groups.values()


@pytest.mark.parametrize("name", NAMES["none"])
def test_names_of_kinds_and_numbers_suggest_none(name):
    case = NAMES["none"][name]
    files = worked_out(case["files"], globals())
    assert suggested(*sides(files), case.get("n_classes", 2)) is None


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
