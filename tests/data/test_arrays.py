"""Arrays and .npz files as sets of images, and a sentence for each thing wrong with them."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from damage import MEGABYTE, at_most
from error_text import text_of
from laid_npz import GOOD, lay, npy
from torchcaps.data import from_arrays, from_npz

BYTES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
LABELS = [0, 1]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((2, 6, 5), (1, 6, 5)),
        ((2, 3, 6, 5), (3, 6, 5)),
        ((2, 6, 5, 3), (3, 6, 5)),
        ((2, 6, 5, 1), (1, 6, 5)),
        ((2, 13, 6, 5), (13, 6, 5)),
        ((2, 4, 6, 4), (4, 6, 4)),
        ((2, 1, 6, 1), (1, 6, 1)),
    ],
)
def test_channels_are_found(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert from_arrays(np.zeros(shape, np.uint8), LABELS).image_shape == expected


def test_pixels_keep_their_places() -> None:
    last = BYTES.reshape(1, 6, 2, 2).repeat(2, 0)
    found = from_arrays(last, LABELS)
    assert found.images[1, 1].tolist() == last[1, :, :, 1].tolist()


@pytest.mark.parametrize("kind", [torch.tensor, np.array, lambda values: values])
def test_tensors_arrays_and_lists_give_the_same(kind) -> None:
    found = from_arrays(kind([[[0.0, 0.5]], [[1.0, 0.25]]]), kind(LABELS))
    assert found.images.dtype == torch.float32
    assert found.images.tolist() == [[[[0.0, 0.5]]], [[[1.0, 0.25]]]]
    assert found.labels.dtype == torch.int64
    assert found.class_names == ("0", "1")


@pytest.mark.parametrize("code", ["<i2", ">i4", "u1", ">u8", "<i8"])
def test_labels_of_every_kind_of_whole_number_are_read(code: str) -> None:
    assert from_arrays(BYTES, np.array([[1], [0]], code)).labels.tolist() == [1, 0]


def test_arrays_that_run_backwards_or_the_other_byte_order_are_read() -> None:
    floats = np.array([[[0.25, 0.5]], [[1.0, 0.0]]], ">f8")
    assert from_arrays(floats[:, :, ::-1], LABELS).images.flatten().tolist() == [0.5, 0.25, 0, 1]


def test_the_callers_array_is_not_shared() -> None:
    given_array = BYTES.copy()
    found = from_arrays(given_array, LABELS)
    given_array[:] = 0
    assert found.images.flatten().tolist() == list(range(24))


@pytest.mark.parametrize("shape", [(4, 6, 5), (4, 3, 6, 5), (4, 6, 5, 3)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
def test_the_callers_tensors_are_not_shared(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Who wrote into them changed the set and its digest, and of arrays neither."""
    images, labels = torch.ones(shape, dtype=dtype), torch.tensor([0, 1, 0, 1])
    made = from_arrays(images, labels)
    digest = made.digest()
    images.zero_()
    labels.zero_()
    assert (made.images == 1).all()
    assert made.labels.tolist() == [0, 1, 0, 1]
    assert made.digest() == digest


def test_class_names_are_kept() -> None:
    assert from_arrays(BYTES, [1, 1], ("cat", "dog")).class_names == ("cat", "dog")
    # Files of a run hold text.
    assert from_arrays(BYTES, [1, 1], np.array([3, 7])).class_names == ("3", "7")


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_file_gives_what_was_laid_down(tmp_path: Path, packing: int) -> None:
    found = from_npz(lay(tmp_path / "pets.npz", GOOD, packing=packing), ("cat", "dog"))
    assert found.name == "pets"
    assert found.image_shape == (1, 3, 4)
    assert found.images.flatten().tolist() == list(range(24))
    assert found.labels.tolist() == [1, 0]


def test_a_file_of_numpys_own_is_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=BYTES / 24, y=np.array([[1], [0]]))
    found = from_npz(tmp_path / "a.npz", images="x", labels="y")
    assert found.images.flatten().tolist() == pytest.approx([each / 24 for each in range(24)])


def test_a_bomb_is_refused_by_its_stated_size(tmp_path: Path, monkeypatch) -> None:
    bomb = npy(f"({32 * MEGABYTE},)", bytes(32 * MEGABYTE))
    path = lay(tmp_path / "a.npz", GOOD | {"images": bomb})
    monkeypatch.setitem(from_npz.__globals__, "MOST_BYTES", MEGABYTE)
    with at_most(MEGABYTE):
        assert "bytes for them (at most 1048576 are read);" in text_of(lambda: from_npz(path))


def test_a_header_that_claims_gigabytes_is_refused(tmp_path: Path) -> None:
    claims = b"\x93NUMPY\x02\x00" + (2_000_000_000).to_bytes(4, "little") + b"{" * 1000
    path = lay(tmp_path / "a.npz", GOOD | {"images": claims})
    with at_most(2 * MEGABYTE):
        assert "its header claims 2,000,000,000 characters" in text_of(lambda: from_npz(path))


@pytest.mark.parametrize("labels", ["(3,)", "(2, 2)"])
def test_what_does_not_fit_together_is_refused_by_its_headers(tmp_path: Path, labels: str) -> None:
    large = npy(f"(2, {8 * MEGABYTE}, 2)", bytes(32 * MEGABYTE))
    few = npy(labels, bytes(3 if labels == "(3,)" else 4))
    path = lay(tmp_path / "a.npz", {"images": large, "labels": few})
    with at_most(MEGABYTE):
        assert "with labels [" in text_of(lambda: from_npz(path))


def test_labels_count_as_what_they_become(tmp_path: Path, monkeypatch) -> None:
    """One byte each in the file, packed to a thousandth, and eight in memory."""
    zeros = bytes(MEGABYTE)
    many = {"images": npy(f"({MEGABYTE}, 1, 1)", zeros), "labels": npy(f"({MEGABYTE},)", zeros)}
    path = lay(tmp_path / "a.npz", many)
    monkeypatch.setitem(from_npz.__globals__, "MOST_BYTES", 9 * MEGABYTE)
    with at_most(MEGABYTE):
        assert text_of(lambda: from_npz(path)).startswith(
            f"{path} holds 1048576 images with labels, which take 94"
        )
    monkeypatch.setitem(from_npz.__globals__, "MOST_BYTES", 10 * MEGABYTE)
    with at_most(14 * MEGABYTE):
        assert len(from_npz(path, ("cat", "dog"))) == MEGABYTE


@pytest.mark.parametrize("labels", [b"\0\2", b"\0\xff", b"\0\0"])
def test_labels_are_refused_before_images_are_read(tmp_path: Path, labels: bytes) -> None:
    large = npy(f"(2, {8 * MEGABYTE}, 2)", bytes(32 * MEGABYTE))
    path = lay(tmp_path / "a.npz", {"images": large, "labels": npy("(2,)", labels, code="|i1")})
    names = ("cat", "dog") if any(labels) else None
    with at_most(MEGABYTE):
        assert text_of(lambda: from_npz(path, names)).startswith("a: labels must ")


@pytest.mark.parametrize("array", [np.asfortranarray(BYTES / 24), (BYTES / 24).astype(">f8")])
def test_an_array_that_is_copied_counts_twice(tmp_path: Path, monkeypatch, array) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, images=array, labels=LABELS)
    assert torch.equal(from_npz(path).images, from_arrays(BYTES / 24, LABELS).images)
    # Twice 24 values of eight bytes, the header of 128 and two labels of eight.
    monkeypatch.setitem(from_npz.__globals__, "MOST_BYTES", 2 * 24 * 8 + 128)
    assert f"{path} holds 2 images with labels, which take 528 bytes" in text_of(
        lambda: from_npz(path)
    )
    monkeypatch.setitem(from_npz.__globals__, "MOST_BYTES", 528)
    assert len(from_npz(path)) == 2


def test_a_file_is_held_in_memory_once(tmp_path: Path) -> None:
    pixels = npy(f"(2, {8 * MEGABYTE}, 2)", bytes(32 * MEGABYTE))
    path = lay(tmp_path / "a.npz", GOOD | {"images": pixels})
    with at_most(48 * MEGABYTE):
        assert from_npz(path, ("cat", "dog")).image_shape == (1, 8 * MEGABYTE, 2)


def test_names_that_are_not_there_are_told_with_those_that_are(tmp_path: Path) -> None:
    path = lay(tmp_path / "a.npz", {"x": GOOD["images"], "../y\n": GOOD["labels"]})
    assert text_of(lambda: from_npz(path)) == (
        f"{path} holds no array 'images' but 'x', '../y\\n'; name them: images=, labels=, groups=."
    )
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no archive", GOOD["images"]])
def test_what_is_no_archive_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.npz"
    assert text_of(lambda: from_npz(path)) == f"there is no file {path}; is the path right?"
    path.write_bytes(content)
    assert text_of(lambda: from_npz(path)) == (
        f"{path} could not be read as an .npz file (File is not a zip file); it is cut short, "
        f"damaged or of another format: save it again by numpy.savez."
    )


@pytest.mark.parametrize("groups", [np.array(["ann", "bob"]), np.array([7, 8])])
def test_groups_are_read_beside_images(tmp_path: Path, groups) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, images=BYTES, labels=LABELS, patient=groups)
    expected = tuple(map(str, groups.tolist()))
    assert from_npz(path, groups="patient").groups == expected
    assert from_arrays(BYTES, LABELS, groups=groups).groups == expected
    assert from_npz(path).groups is None
