"""MATLAB files laid down by hand, and each way to break them."""

import struct
import zlib
from pathlib import Path

import pytest
import torch

from damage import MEGABYTE, at_most
from error_text import text_of
from laid_mat import (
    A_BYTE,
    A_DOUBLE,
    A_STRUCT,
    A_TEXT,
    DOUBLE,
    INT8,
    INT32,
    MATRIX,
    PACKED,
    SIZES,
    UINT8,
    Writer,
    X,
    affnist_bytes,
    big,
    little,
    svhn_bytes,
)
from torchcaps.data import affnist, load, svhn
from torchcaps.data.read.mat import read_mat


@pytest.mark.parametrize("writer", [little, big], ids=["little", "big"])
@pytest.mark.parametrize("packed", [False, True])
def test_svhn_is_what_was_laid_down(tmp_path: Path, writer: Writer, packed: bool) -> None:
    (tmp_path / "train_32x32.mat").write_bytes(svhn_bytes(writer, packed=packed))
    found = load("svhn", root=tmp_path)
    assert found.images.shape == (2, 3, 32, 32)
    assert found.images[0, 0, :, 5].tolist() == list(range(32))
    assert found.images[0, 1, 5].tolist() == list(range(32))
    assert not found.images[0, 2].any()
    assert not found.images[1].any()
    # The digit 0 has label 10.
    assert found.labels.tolist() == [0, 7]


@pytest.mark.parametrize("packed", [False, True])
def test_affnist_is_what_was_laid_down(tmp_path: Path, packed: bool) -> None:
    (tmp_path / "test.mat").write_bytes(affnist_bytes(packed=packed))
    found = load("affnist", split="test", root=tmp_path)
    assert found.images.shape == (2, 1, 40, 40)
    assert found.images[0, 0, :, 5].tolist() == list(range(40))
    assert not found.images[1].any()
    assert found.labels.tolist() == [3, 9]


def test_batches_are_put_together_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "affNIST" / "training_and_validation_batches"
    folder.mkdir(parents=True)
    for number in range(1, 12):
        (folder / f"{number}.mat").write_bytes(affnist_bytes(labels=bytes([number % 10, 0])))
    found = affnist(tmp_path, "train")
    assert found.labels[::2].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    (folder / "7.mat").unlink()
    assert text_of(lambda: affnist(tmp_path, "train")) == (
        f"{folder} holds batches up to 11.mat, but lacks 7.mat; fetch it."
    )


def test_numbers_of_every_stored_type_come_back(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    kinds = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 9: "d", 12: "q", 13: "Q"}
    for writer in (little, big):
        content = writer.file(
            *(
                writer.array(
                    b"kind%d" % kind,
                    (3, 2),
                    struct.pack(f"{writer.order}6{code}", *range(1, 7)),
                    what=A_DOUBLE,
                    kind=kind,
                )
                for kind, code in kinds.items()
            )
        )
        path.write_bytes(content)
        for kind in kinds:
            # Column by column.
            assert read_mat(path, [f"kind{kind}"])[f"kind{kind}"].tolist() == [
                *([1, 4], [2, 5], [3, 6]),
            ]


def test_what_nobody_asks_for_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    text = little.array(b"note", (1, 3), b"abc", what=A_TEXT)
    damaged = little.packed(little.array(b"other", (9,) * 2, bytes(81)))[:-4] + b"\xff" * 4
    unknown = little.element(99, b"12345678")
    path.write_bytes(
        little.file(text, unknown, damaged, little.array(b"y", (1, 2), b"\x01\x02"), text)
    )
    assert read_mat(path, ["y"])["y"].tolist() == [[1, 2]]


GOOD = svhn_bytes()
LATE = 128 + 8  # where the first array begins


def with_x(element: bytes) -> bytes:
    return little.file(element, little.array(b"y", (2, 1), b"\x0a\x07"))


def x_of(sizes: tuple[int, ...], content: bytes, **what) -> bytes:
    return with_x(little.array(b"X", sizes, content, **what))


BAD = [
    (b"", "should have 00 01 49 4d, the mark of a MATLAB 5 file, at byte 124, but has nothing;"),
    (GOOD[:100], "but has nothing; it is another format, or damaged."),
    (b"\x89PNG" + bytes(124) + GOOD[128:], "at byte 124, but has 00 00 00 00;"),
    (GOOD[:124] + b"\x00\x02IM" + GOOD[128:], "is a MATLAB 7.3 file, which is HDF5 inside; save"),
    (GOOD[:124] + b"\x01\x00IM" + GOOD[128:], "but has 01 00 49 4d;"),
    (GOOD[:-20], f"has {len(GOOD) - 20} bytes, but an element in it ends at byte {len(GOOD)};"),
    (GOOD[:131], "ends after 3 of the 8 bytes that its header announces;"),
    (GOOD[:128], "lacks X and y; it holds nothing: it is another file."),
    (little.file(little.array(b"y", (2, 1), b"\1\2")), "lacks X; it holds y: it is another file."),
    (GOOD[:LATE] + b"\x07" + GOOD[LATE + 1 :], "has an element of type 7 with 8 bytes where flags"),
    (
        x_of(SIZES, X[:-8]),
        "has 32 × 32 × 3 × 2 values of 1 bytes in X, but 6136 bytes for them (at most 1073741824 "
        "are read); it is damaged: fetch it again.",
    ),
    (x_of((32, 32, 3, 2**31 - 1), X), "has 32 × 32 × 3 × 2147483647 values of 1 bytes in X,"),
    (x_of((2**31 - 1,) * 4, X), "has 2147483647 × 2147483647 × 2147483647 × 2147483647 values"),
    (x_of((32, 32, -3, -2), X), "has 32 × 32 × -3 × -2 values of 1 bytes in X,"),
    (x_of((32, 32, 3, 0), b""), "has 32 × 32 × 3 × 0 values of 1 bytes in X,"),
    (x_of((1,) * 9, X), "has an element of type 5 with 36 bytes where sizes belong;"),
    (x_of((6144,), X), "has sizes of 4 bytes;"),
    (x_of((3, 32, 32, 2), X), "should hold X as 32 × 32 × 3 × n bytes, but has uint8 of 3 × 32"),
    (x_of((28, 28, 1, 2), bytes(1568)), "X as 32 × 32 × 3 × n bytes, but has uint8 of 28 × 28"),
    (x_of(SIZES, X * 2, kind=3), "X as 32 × 32 × 3 × n bytes, but has int16 of 32 × 32 × 3 × 2;"),
    (x_of(SIZES, X, kind=99), "has values of the unknown type 99 in X;"),
    (x_of(SIZES, X, what=A_TEXT), "holds X as text, cells or another kind, where plain numbers"),
    (x_of(SIZES, X, what=A_BYTE | 0x0800), "holds X as text, cells or another kind, where plain"),
    (x_of((32, 32, 3, 1), X[:3072]), "svhn: labels must be int64 [1], one an image, but came as"),
]


@pytest.mark.parametrize(("content", "words"), BAD)
def test_a_broken_file_is_told(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "test_32x32.mat"
    path.write_bytes(content)
    with at_most(MEGABYTE):
        assert words in text_of(lambda: svhn(tmp_path, "test"))


@pytest.mark.parametrize(
    ("labels", "kind", "sentence"),
    [
        (b"\x00\x01", UINT8, "y from 1 to 10, but image 0 has 0; it is damaged or another file."),
        (b"\x01\x0b", UINT8, "y from 1 to 10, but image 1 has 11;"),
        (b"\x01\xff", INT8, "y from 1 to 10, but image 1 has -1;"),
        (struct.pack("<2d", 1, float("nan")), DOUBLE, "but image 1 has nan;"),
        (struct.pack("<2d", 2.5, 1), DOUBLE, "but image 0 has 2.5;"),
        (struct.pack("<2d", float("inf"), 1), DOUBLE, "but image 0 has inf;"),
    ],
)
def test_a_label_that_is_no_digit_is_told(tmp_path: Path, labels: bytes, kind, sentence) -> None:
    elements = [
        little.array(b"X", SIZES, X),
        little.array(b"y", (2, 1), labels, what=A_DOUBLE, kind=kind),
    ]
    (tmp_path / "train_32x32.mat").write_bytes(little.file(*elements))
    assert sentence in text_of(lambda: svhn(tmp_path, "train"))


def packed_file(content: bytes, count: int | None = None) -> bytes:
    tag = struct.pack("<II", PACKED, len(content) if count is None else count)
    return little.file(tag + content)


A_FINE_X = little.array(b"X", SIZES, X)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (packed_file(zlib.compress(A_FINE_X)[:-20]), "ends after"),
        (packed_file(zlib.compress(A_FINE_X)[:-4] + b"oops"), "could not be unpacked (Error -3"),
        (packed_file(b"no zlib at all"), "could not be unpacked (Error -3"),
        (packed_file(zlib.compress(A_FINE_X), 9999), "but an element in it ends at byte"),
        (packed_file(zlib.compress(A_FINE_X[:-8])), "ends after"),
        (packed_file(zlib.compress(A_FINE_X + bytes(5 * MEGABYTE))), "array of another size than"),
        (
            packed_file(zlib.compress(A_FINE_X)[:-2]),
            "holds an array of another size than its header",
        ),
        (packed_file(zlib.compress(b"tiny")), "ends after 4 of the 8 bytes that its header"),
        (
            packed_file(zlib.compress(struct.pack("<II", MATRIX, 20) + A_FINE_X[8:])),
            "where only",
        ),
        (
            # 64 megabytes of one variable, of which no more than its head is unpacked.
            packed_file(zlib.compress(little.array(b"Z", (1 << 26, 1), bytes(1 << 26)))),
            "lacks X and y; it holds Z: it is another file.",
        ),
        (
            packed_file(zlib.compress(little.array(b"X", SIZES, bytes(1 << 26)))),
            "has 32 × 32 × 3 × 2 values of 1 bytes in X, but 67108864 bytes for them",
        ),
    ],
    ids=[
        *("cut", "checksum", "no zlib", "absurd", "short", "long", "unfinished", "tiny"),
        *("lying", "stranger", "bomb"),
    ],
)
def test_a_broken_packing_is_told(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "train_32x32.mat").write_bytes(content)
    with at_most(6 * MEGABYTE):
        assert words in text_of(lambda: svhn(tmp_path, "train"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            affnist_bytes(images=bytes(2 * 784)),
            "affNISTdata.image as 1600 × n bytes, but has uint8",
        ),
        (
            affnist_bytes(labels=b"\x0a\x01"),
            "affNISTdata.label_int from 0 to 9, but image 0 has 10",
        ),
        (svhn_bytes(), "lacks affNISTdata.image and affNISTdata.label_int; it holds X, y: it is"),
        (little.file(little.array(b"affNISTdata", (1, 1), b"\1")), "lacks affNISTdata.image and"),
        (affnist_bytes().replace(b"label_int", b"label_ant"), "lacks affNISTdata.label_int; it"),
        (
            little.file(
                little.element(MATRIX, little.head(A_STRUCT, (1, 2), b"affNISTdata") + bytes(64))
            ),
            "has 1 × 2 structs affNISTdata where one belongs; it is damaged",
        ),
        (
            little.file(
                little.element(
                    MATRIX,
                    little.head(A_STRUCT, (1, 1), b"affNISTdata")
                    + little.small(INT32, struct.pack("<i", -3))
                    + little.element(INT8, bytes(32)),
                )
            ),
            "has names of fields of -3 letters in 32 bytes;",
        ),
        (little.file(little.struct(b"affNISTdata", image=bytes(8))), "has an element of type 0"),
        (
            little.file(
                little.struct(b"affNISTdata", image=struct.pack("<II", MATRIX, 2**31) + bytes(64))
            ),
            "has a field 'image' longer than its struct;",
        ),
    ],
    ids=["size", "label", "svhn", "no struct", "field", "two", "width", "kind", "absurd"],
)
@pytest.mark.parametrize("name", ["test.mat", "test_batches/1.mat"])
def test_a_broken_struct_is_told(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    text = text_of(lambda: affnist(tmp_path, "test"))
    assert text.startswith(f"{path} ")
    assert words in text


def test_missing_files_are_told(tmp_path: Path) -> None:
    assert text_of(lambda: svhn(tmp_path, "train")) == (
        f"train_32x32.mat is not in {tmp_path}; point to the folder that holds train_32x32.mat and "
        f"test_32x32.mat."
    )
    assert text_of(lambda: affnist(tmp_path, "test")) == (
        f"test.mat or test_batches/1.mat is not in {tmp_path}; point to the folder that holds "
        f"test.mat or training_and_validation_batches."
    )


def test_images_are_the_callers_own(tmp_path: Path) -> None:
    (tmp_path / "test.mat").write_bytes(affnist_bytes())
    found = affnist(tmp_path, "test")
    found.images[:] = 7
    assert torch.equal(affnist(tmp_path, "test").images[0, 0, 1], torch.ones(40, dtype=torch.uint8))
