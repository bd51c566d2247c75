"""smallNORB files laid down by hand."""

from pathlib import Path

import pytest

from laid_norb import TEST, TRAIN, folder
from torchcaps.data import load


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("stem", "split"), [(TRAIN, "train"), (TEST, "test")])
def test_pairs_labels_and_viewpoints_are_those_laid_down(tmp_path, packed, stem, split) -> None:
    found = load("smallnorb", split=split, root=folder(tmp_path, stem, packed=packed))
    assert found.image_shape == (2, 96, 96)
    assert found.images[0, 0, :, 7].tolist() == list(range(96))
    assert found.images[0, 1, 7].tolist() == list(range(96))
    assert not found.images[1].any()
    assert [found.class_names[label] for label in found.labels] == ["car", "animal"]
    assert {name: fact.tolist() for name, fact in found.facts.items()} == {
        "instance": [8, 4],
        "elevation": [45, 30],
        "azimuth": [340, 0],
        "lighting": [5, 0],
    }


def test_a_folder_of_the_sets_name_is_looked_into(tmp_path: Path) -> None:
    inner = tmp_path / "smallNORB"
    inner.mkdir()
    folder(inner)
    assert len(load("smallnorb", root=tmp_path)) == 2
