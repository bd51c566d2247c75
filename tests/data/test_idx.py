"""IDX files laid down by hand: right bytes back, and a sentence for every way to be broken."""

import gzip
import struct
import zlib
from pathlib import Path

import pytest
import torch

from damage import MEGABYTE, at_most
from error_text import text_of
from laid_idx import GOOD, folder, idx
from torchcaps.data import fashion_mnist, load, mnist, read_idx


@pytest.fixture(params=["plain", "gz"])
def lay(request: pytest.FixtureRequest, tmp_path: Path):
    """Writes bytes as an IDX file, packed or not, and returns its path."""

    def write(content: bytes, name: str = "file-idx") -> Path:
        packed = request.param == "gz"
        path = tmp_path / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content) if packed else content)
        return path

    return write


def test_values_and_shape_are_those_laid_down(lay) -> None:
    found = read_idx(lay(GOOD), axes=3)
    assert found.dtype == torch.uint8
    assert found.tolist() == [
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]],
        [[12, 13, 14, 15], [16, 17, 18, 19], [20, 21, 22, 23]],
    ]
    # Sizes are 32-bit and big-endian: 300 does not fit a byte.
    assert read_idx(lay(idx((300,), bytes(299) + b"\xff")), axes=1)[-1] == 255


@pytest.mark.parametrize("axes", [(2**31, 2, 2), (2**32 - 1,) * 3, (2**30 + 1, 1, 1)])
def test_absurd_sizes_are_refused_before_anything_is_read(lay, monkeypatch, axes) -> None:
    path = lay(idx(axes, b""))
    asked = []
    exactly = read_idx.__globals__["exactly"]
    monkeypatch.setitem(
        read_idx.__globals__,
        "exactly",
        lambda file, count, path: asked.append(count) or exactly(file, count, path),
    )
    claimed = " × ".join(map(str, axes))
    assert text_of(lambda: read_idx(path, axes=3)) == (
        f"{path} claims to hold {claimed} values; known files of this kind hold 1 to 1073741824: "
        f"its header is damaged."
    )
    assert asked == [12]


def test_mnist_reads_both_splits_packed_or_not(tmp_path: Path) -> None:
    train, test = (mnist(folder(tmp_path), split) for split in ("train", "test"))
    assert train.image_shape == (1, 3, 4)
    assert train.labels.tolist() == [7, 0]
    assert train.images[1, 0, 2].tolist() == [20, 21, 22, 23]
    assert test.labels.tolist() == [9]
    assert test.images[0, 0, 0].tolist() == [12, 13, 14, 15]
    assert test.class_names == ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    (folder(tmp_path) / "t10k-labels-idx1-ubyte").unlink()
    assert "t10k-labels-idx1-ubyte.gz is not in" in text_of(lambda: mnist(tmp_path, "test"))


def test_files_are_found_where_others_lay_them(tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    assert mnist(folder(raw), "train").labels.tolist() == [7, 0]
    assert mnist(tmp_path, "train").labels.tolist() == [7, 0]


def test_images_and_labels_of_two_copies_are_not_mixed(tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    (folder(raw) / "train-images-idx3-ubyte").rename(tmp_path / "train-images-idx3-ubyte")
    assert text_of(lambda: mnist(tmp_path, "train")) == (
        f"train-labels-idx1-ubyte or train-labels-idx1-ubyte.gz is not in {tmp_path}; point "
        f"to the folder that holds the four files of MNIST."
    )


def test_fashion_mnist_has_its_own_name_classes_and_folder(tmp_path: Path) -> None:
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    found = load("fashion-mnist", root=folder(raw).parents[1])
    assert found.name == "fashion-mnist"
    assert [found.class_names[label] for label in found.labels] == ["Sneaker", "T-shirt/top"]
    assert text_of(lambda: load("mnist", root=tmp_path)) == (
        f"train-images-idx3-ubyte or train-images-idx3-ubyte.gz is not in {tmp_path}; point "
        f"to the folder that holds the four files of MNIST."
    )


def test_the_labels_of_the_other_set_are_told(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(mnist.__globals__["LABELS"], zlib.crc32(b"\x07\x00"), "fashion-mnist")
    root = folder(tmp_path)
    assert text_of(lambda: mnist(root, "train")) == (
        f"{root / 'train-labels-idx1-ubyte.gz'} are the labels of fashion-mnist, not of mnist; "
        f"load them under their own name."
    )
    assert len(fashion_mnist(root, "train")) == 2


def test_a_bomb_is_not_unpacked_further_than_its_header_says(tmp_path: Path) -> None:
    path = tmp_path / "file-idx.gz"
    path.write_bytes(gzip.compress(GOOD + bytes(64 * MEGABYTE)))
    with at_most(2 * MEGABYTE):
        assert "holds more than the 24 bytes" in text_of(lambda: read_idx(path, axes=3))


def test_no_set_has_a_gigabyte_of_labels(lay) -> None:
    path = lay(bytes([0, 0, 8, 1]) + struct.pack(">I", 1 << 25))
    with at_most(2 * MEGABYTE):
        text = text_of(lambda: read_idx(path, axes=1))
    assert "claims to hold 33554432 values; known files of this kind hold 1 to 16777216" in text
