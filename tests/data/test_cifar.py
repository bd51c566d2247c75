"""CIFAR files laid down by hand: binary, pickled, archived; and a sentence for every damage."""

import gzip
import os
import pickle
from pathlib import Path

import pytest
import torch

from damage import MEGABYTE, at_most
from error_text import text_of
from laid_cifar import (
    BLACK,
    PICTURE,
    archive,
    batch,
    binary_ten,
    member,
    published_are,
    python_ten,
)
from torchcaps.data import cifar10, cifar100, load


def test_binary_records_are_label_then_red_green_blue(tmp_path: Path) -> None:
    train, test = (cifar10(binary_ten(tmp_path), split) for split in ("train", "test"))
    assert train.labels.tolist() == [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    assert train.image_shape == (3, 32, 32)
    for plane, first in enumerate((0, 64, 128)):
        rows = torch.arange(first, first + 32, dtype=torch.uint8)
        assert torch.equal(train.images[4, plane], rows[:, None].expand(32, 32))
    assert not train.images[1::2].any()
    assert test.labels.tolist() == [3]
    assert test.class_names[3] == "cat"


def test_pickles_of_python_2_hold_the_same(tmp_path: Path, monkeypatch) -> None:
    binary, python = binary_ten(tmp_path / "a"), python_ten(tmp_path / "b")
    published_are(monkeypatch, *(path.read_bytes() for path in python.iterdir()))
    for split in ("train", "test"):
        assert cifar10(python, split).digest() == cifar10(binary, split).digest()


def test_hundred_has_the_fine_label_in_both_versions(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "train.bin").write_bytes(b"\x04\x63" + PICTURE + b"\x13\x00" + BLACK)
    found = cifar100(tmp_path, "train")
    assert found.labels.tolist() == [99, 0]
    assert [found.class_names[label] for label in found.labels] == ["worm", "apple"]
    assert len(set(found.class_names)) == 100
    assert list(found.class_names) == sorted(found.class_names)
    (tmp_path / "test").write_bytes(content := batch([99], PICTURE, key=b"fine_labels"))
    published_are(monkeypatch, content)
    assert torch.equal(cifar100(tmp_path, "test").images[0], found.images[0])


@pytest.mark.parametrize("name", ["cifar-10-binary.tar.gz", "cifar-10-python.tar.gz", "mine.tar"])
def test_an_archive_is_read_where_it_lies(tmp_path: Path, name: str, monkeypatch) -> None:
    python = "python" in name
    make, inside = (
        (python_ten, "cifar-10-batches-py") if python else (binary_ten, "cifar-10-batches-bin")
    )
    files = sorted(make(tmp_path / "laid").iterdir())
    published_are(monkeypatch, *(file.read_bytes() for file in files))
    members = [member(f"{inside}/{file.name}", file.read_bytes()) for file in files]
    path = archive(
        tmp_path / name, member(f"{inside}/", b"", kind=b"5"), member("a", b"?"), *members
    )
    before = sorted(tmp_path.rglob("*"))
    for split in ("train", "test"):
        assert cifar10(path, split).digest() == cifar10(tmp_path / "laid", split).digest()
    if name != "mine.tar":
        assert len(load("cifar10", root=tmp_path)) == 10
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_above_the_files_is_enough(tmp_path: Path) -> None:
    binary_ten(tmp_path / "cifar-10-batches-bin")
    assert len(load("cifar10", root=tmp_path)) == 10


def test_a_folder_without_one_of_the_files_is_told(tmp_path: Path) -> None:
    (binary_ten(tmp_path) / "data_batch_4.bin").unlink()
    assert text_of(lambda: cifar10(tmp_path, "train")) == (
        f"there is no file {tmp_path / 'data_batch_4.bin'}; is the data folder right?"
    )


def test_a_batch_cut_between_two_images_is_told(tmp_path: Path) -> None:
    path = binary_ten(tmp_path) / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:3073])
    assert text_of(lambda: cifar10(tmp_path, "train")) == (
        f"the 5 batches of cifar10 in {tmp_path} hold [2, 1, 2, 2, 2] images, which should be "
        f"equally many; the smaller ones are cut short: fetch them again."
    )


def test_an_absurd_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = binary_ten(tmp_path) / "test_batch.bin"
    os.truncate(path, 1 << 40)  # a hole, which fills no disk
    with at_most(MEGABYTE):
        assert text_of(lambda: cifar10(tmp_path, "test")) == (
            f"{path} has 1099511627776 bytes; a file of this kind has at most 268435456: it is "
            f"another file."
        )


class Malice:
    """What a pickle does when a careless reader opens it."""

    def __init__(self, call, *words) -> None:
        self.call, self.words = call, words

    def __reduce__(self):
        return self.call, self.words


WISHES = [
    (pickle.dumps(Malice(os.system, "touch HERE"), protocol=2), "posix.system"),
    (pickle.dumps(Malice(os.system, "touch HERE"), protocol=4), "posix.system"),
    (pickle.dumps(Malice(eval, "open('HERE', 'w')"), protocol=3), "builtins.eval"),
    (pickle.dumps(Malice(exec, "open('HERE', 'w')"), protocol=0), "__builtin__.exec"),
    (pickle.dumps({"data": Malice(bytearray, 1 << 40)}, protocol=4), "builtins.bytearray"),
    (b"(S'touch HERE'\nios\nsystem\n.", "os.system"),
    (b"cos\nsystem\n(U\x0atouch HEREtR.", "os.system"),
    (b"cnumpy\nload\n(U\x04HEREtR.", "numpy.load"),
    (b"cnumpy.core.multiarray\nfromfile\n.", "numpy.core.multiarray.fromfile"),
]


@pytest.mark.parametrize(("content", "wish"), WISHES)
def test_a_malicious_pickle_is_told_and_never_run(
    tmp_path: Path, monkeypatch, content: bytes, wish: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = python_ten(tmp_path) / "test_batch"
    path.write_bytes(content)
    before = sorted(tmp_path.iterdir())
    text = text_of(lambda: cifar10(tmp_path, "test"))
    assert text.startswith(f"{path} is not the published file: its MD5 begins with ")
    assert text.endswith("it may run code; fetch it again, or the binary version.")
    # Nor is it run where its MD5 is that of a published one.
    published_are(monkeypatch, content)
    text = text_of(lambda: cifar10(tmp_path, "test"))
    assert f"asks for {wish}, where only arrays belong; nothing of it was run." in text
    assert sorted(tmp_path.iterdir()) == before


def test_another_pickle_costs_no_memory(tmp_path: Path) -> None:
    """Python makes room for every number below that of a memo, and hashes tuples within tuples
    until the stack overflows."""
    path = python_ten(tmp_path) / "test_batch"
    deep = b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s."
    memo = b"\x80\x02K\x01r" + (1 << 27).to_bytes(4, "little") + b"."
    for content in (b"", deep, memo, batch([3], PICTURE), batch([3], PICTURE)[:-1]):
        path.write_bytes(content)
        with at_most(MEGABYTE):
            assert "is not the published file" in text_of(lambda: cifar10(tmp_path, "test"))


TEST = "cifar-10-batches-bin/test_batch.bin"


def test_a_tail_of_rubbish_is_not_unpacked_for_ever(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(cifar10.__globals__, "MOST_BYTES", 4 * MEGABYTE)
    unpacked = []
    exactly = gzip.GzipFile.read
    monkeypatch.setattr(
        gzip.GzipFile,
        "read",
        lambda file, size=-1: unpacked.append(size) or exactly(file, size),
    )
    content = member(TEST, b"\x03" + PICTURE) + bytes(1024) + bytes(64 * MEGABYTE)
    path = tmp_path / "bomb.tar.gz"
    path.write_bytes(gzip.compress(content, compresslevel=1))
    assert len(cifar10(path, "test")) == 1
    assert sum(unpacked) < 6 * MEGABYTE
