"""What no file system takes is refused before anything is opened."""

import os
from pathlib import Path

import pytest

from error_text import text_of
from torchcaps import data, load
from torchcaps._paths import path_of
from torchcaps.train import read_recipe


class Bytes(os.PathLike):
    def __fspath__(self):
        return b"folder"


NO_PATHS = {
    "number": (5, "must be a path, text or a pathlib.Path, but came as 5."),
    "nothing": (None, "must be a path, text or a pathlib.Path, but came as None."),
    "list": (["a"], "must be a path, text or a pathlib.Path, but came as ['a']."),
    "bytes": (b"a", "must be a path, text or a pathlib.Path, but came as b'a'."),
    "bytes within": (Bytes(), "must be a path, text or a pathlib.Path, but came as <"),
    "zero": ("a\0b", "no path holds the character zero, but "),
    "long": ("a" * 5000, "is longer than the name of any file may be: 'aaa"),
}


@pytest.mark.parametrize("kind", NO_PATHS)
def test_what_is_no_path_is_refused(kind):
    value, sentence = NO_PATHS[kind]
    assert sentence in text_of(lambda: path_of("root", value))
    assert sentence in text_of(lambda: load(value))
    assert sentence in text_of(lambda: read_recipe(value))
    if value is not None:
        for name in ("folder", "mnist", "svhn", "smallnorb", "cifar10", "affnist"):
            assert sentence in text_of(lambda: data.load(name, root=value))  # noqa: B023


@pytest.mark.parametrize("path", ["", "no/such", Path("folder"), "/proc/self/mem", "~nobody"])
def test_any_other_is_a_path(path):
    assert path_of("root", path) == Path(path)
