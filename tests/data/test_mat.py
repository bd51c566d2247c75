"""SVHN and affNIST: what their files hold, and that no other file reaches their parser."""

import sys

import pytest
import torch

from damage import MEGABYTE, at_most
from error_text import text_of
from laid_mat import affnist_bytes, as_published, svhn_bytes, zipped
from torchcaps.data import affnist, load, svhn


def test_svhn_is_what_was_laid_down(tmp_path, monkeypatch):
    (tmp_path / "train_32x32.mat").write_bytes(svhn_bytes())
    as_published(monkeypatch, tmp_path)
    found = load("svhn", root=tmp_path)
    assert found.images.shape == (2, 3, 32, 32)
    assert found.images[0, 0, :, 5].tolist() == list(range(32))
    assert found.images[0, 1, 5].tolist() == list(range(32))
    assert not found.images[0, 2].any()
    assert not found.images[1].any()
    # The digit 0 has label 10.
    assert found.labels.tolist() == [0, 7]


def test_affnist_is_what_was_laid_down(tmp_path, monkeypatch):
    zipped(tmp_path / "affNIST/test.mat.zip", test=affnist_bytes())
    as_published(monkeypatch, tmp_path)
    found = load("affnist", split="test", root=tmp_path)
    assert found.images.shape == (2, 1, 40, 40)
    assert found.images[0, 0, :, 5].tolist() == list(range(40))
    assert not found.images[1].any()
    assert found.labels.tolist() == [3, 9]
    # They are the caller's own.
    found.images[:] = 7
    assert torch.equal(affnist(tmp_path, "test").images[0, 0, 1], torch.ones(40, dtype=torch.uint8))


def test_batches_are_put_together_in_the_order_of_their_numbers(tmp_path, monkeypatch):
    batches = {f"a__{k}": affnist_bytes(labels=bytes([k % 10, 0])) for k in range(1, 12)}
    # What Macs leave in an archive is no batch.
    zipped(tmp_path / "training_batches.zip", **batches, **{"__MACOSX__._1": b"no"})
    as_published(monkeypatch, tmp_path)
    found = affnist(tmp_path, "train")
    assert found.labels[::2].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]


# Inside scipy 1.17.1 an array of an unknown type ends the process.
HOSTILE = svhn_bytes().replace(b"\x02\x00\x00\x00", b"\x63\x00\x00\x00")


@pytest.mark.parametrize(
    ("read", "name", "begins"),
    [
        (svhn, "test_32x32.mat", "cdce80dfb2a2"),
        (affnist, "test.mat.zip", "2cde38ec83ee"),
    ],
)
@pytest.mark.parametrize(
    "content",
    [b"", b"PK no archive", svhn_bytes(), HOSTILE, bytes(3 * MEGABYTE)],
    # By itself a .mat is named by its content, which says when it was made.
    ids=["empty", "no archive", "another set", "hostile", "large"],
)
def test_another_file_is_refused_before_it_is_opened(
    tmp_path, monkeypatch, read, name, begins, content
):
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    (tmp_path / name).write_bytes(content)
    with at_most(MEGABYTE):
        said = text_of(lambda: read(tmp_path, "test"))
    assert said.startswith(f"{tmp_path / name} is not the published file: its SHA-256 begins with ")
    assert said.endswith(f", where {begins} belongs; move it away, and fetch again.")


def test_without_scipy_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "test_32x32.mat").write_bytes(svhn_bytes())
    as_published(monkeypatch, tmp_path)
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'torchcaps\[data\]'"):
        svhn(tmp_path, "test")
