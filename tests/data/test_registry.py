"""A data set is entered where it is defined, and everybody finds it."""

from contextlib import ExitStack
from unittest import mock

import pytest
import torch

from error_text import text_of
from torchcaps.data import SOURCES, ImageSet, load, registry
from torchcaps.data.by_name import what_it_reads
from torchcaps.data.registry import (
    HOLDS,
    PUBLISHED,
    SETS,
    DataSet,
    PublishedSet,
    data_set,
    file_set,
    made_set,
)

TABLES = ("HOLDS", "PICTURES", "PUBLISHED", "SETS", "SOURCES")


@pytest.fixture(autouse=True)
def _leave_the_tables_as_they_were():
    with ExitStack() as stack:
        for table in TABLES:
            stack.enter_context(mock.patch.dict(getattr(registry, table)))
        yield


def images(name, count=3, size=(4, 4)):
    labels = torch.arange(count) % 2
    return ImageSet(name, torch.rand(count, 1, *size), labels, ("a", "b"))


def test_a_set_of_files_is_entered_by_one_decorator(tmp_path):
    asked = []

    PUBLISHED["dots"] = PublishedSet("dots", "free", "here", ())

    @file_set("dots", "dots.bin", ((1, 4, 4), 2, 3))
    def dots(root, split):
        asked.append((root, split))
        return images("dots")

    assert load("dots", split="test", root=tmp_path).name == "dots"
    assert asked == [(tmp_path, "test")]
    assert data_set("dots") == DataSet((1, 4, 4), 2, 3, has_files=True)
    assert what_it_reads("dots") == "not fetched: it reads dots.bin"
    assert text_of(lambda: load("dots")) == (
        "dots needs root, the folder that holds dots.bin; on the command line: --root FOLDER, into "
        "which torchcaps data get dots --root FOLDER fetches them."
    )
    # The reader stays what it was.
    assert len(dots(tmp_path, "train")) == 3


def test_a_set_that_is_not_published_is_not_said_to_be_fetched():
    file_set("dots", "dots.bin")(lambda root, split: images("dots"))
    assert text_of(lambda: load("dots")).endswith("; on the command line: --root FOLDER.")
    assert "dots" not in PUBLISHED
    assert text_of(lambda: data_set("dots")).startswith("the sizes of data 'dots' are not known; ")


def test_pictures_of_any_size_are_read_in_the_size_that_is_asked_for(tmp_path):
    @file_set("photos", "photos", any_size=True)
    def photos(root, split, *, size=None):
        return images("photos", size=size or (9, 9))

    assert load("photos", root=tmp_path, size=(5, 6)).image_shape == (1, 5, 6)
    assert load("photos", root=tmp_path).image_shape == (1, 9, 9)


def test_a_made_set_needs_no_folder():
    @made_set("drawn", ((1, 4, 4), 2, 7))
    def drawn(split):
        return images("drawn", 7 if split == "train" else 3)

    assert (len(load("drawn")), len(load("drawn", split="test"))) == (7, 3)
    assert not data_set("drawn").has_files
    assert what_it_reads("drawn") == "nothing to fetch: it is made, of no files"


def test_every_set_is_made_or_says_what_it_reads():
    made = {name for name, size in SETS.items() if not size.has_files}
    assert set(SOURCES) - set(HOLDS) == {"own", *made}
    assert {name for name, size in SETS.items() if size.has_files} == set(HOLDS) - {
        *("affnist-style-gu", "folder", "smallnorb")
    }
    assert set(PUBLISHED) <= set(HOLDS)
