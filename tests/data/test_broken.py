"""What readers say of files that somebody broke, in broken.txt: one sentence, and little memory."""

import gzip
import os
import pickle
from pathlib import Path

import pytest

import laid_cifar
import laid_idx
import laid_norb
import laid_npz
import laid_pictures
from damage import MEGABYTE, at_most
from error_text import cases_of, text_of
from laid_cifar import PICTURE, archive, binary_ten, member
from torchcaps.data import cifar10, from_npz, image_folder, read_idx, smallnorb, tiny_imagenet

BROKEN = Path(__file__).with_name("broken.txt")
TEST = "cifar-10-batches-bin/test_batch.bin"
PAIRS, IDX, PACKED = laid_norb.FILES["dat"], laid_idx.GOOD, gzip.compress(laid_idx.GOOD)


def npz(names=("cat", "dog"), /, **other):
    path = laid_npz.lay(Path("a.npz"), laid_npz.GOOD | other)
    with at_most(2 * MEGABYTE):
        said = text_of(lambda: from_npz(path, names))
    assert list(Path().iterdir()) == [path]
    return said


def cifar_binary(content):
    (binary_ten(Path()) / "test_batch.bin").write_bytes(content)
    return text_of(lambda: cifar10(Path(), "test"))


def cifar_archive(*members):
    path = archive(Path("cifar-10-binary.tar.gz"), *members)
    with pytest.MonkeyPatch.context() as patch, at_most(3 * MEGABYTE):
        patch.setitem(cifar10.__globals__, "MOST_BYTES", 4 * MEGABYTE)
        said = text_of(lambda: cifar10(Path(), "test"))
    assert list(Path().iterdir()) == [path]
    return said


def cut_archive(at, end=b""):
    """Of an archive what comes before a byte, and something else behind it."""
    path = archive(Path("cifar-10-binary.tar.gz"), member(TEST, b"\x03" + PICTURE))
    content = path.read_bytes()
    path.write_bytes(content[:at] + bytes(a ^ b for a, b in zip(content[at:], end, strict=False)))
    return text_of(lambda: cifar10(Path(), "test"))


def norb(kind, content):
    said = []
    for packed in (False, True):
        root = Path(f"packed {packed}")
        root.mkdir()
        laid_norb.folder(root, packed=packed, **{kind: content})
        with at_most(MEGABYTE):
            said.append(text_of(lambda root=root: smallnorb(root, "train")))
    return "\n".join(said)


def idx_file(content):
    said = []
    for path, packed in (
        (Path("file-idx"), content),
        (Path("file-idx.gz"), gzip.compress(content)),
    ):
        path.write_bytes(packed)
        said.append(text_of(lambda path=path: read_idx(path, axes=3)))
        assert said[-1].startswith(f"{path} ")
    return "\n".join(said)


def idx_archive(content):
    Path("file.gz").write_bytes(content)
    said = text_of(lambda: read_idx(Path("file.gz"), axes=3))
    assert said.startswith("file.gz could not be unpacked (")
    assert said.endswith("); it is cut short or damaged: fetch it again.")
    return said


def pets(damage):
    root = laid_pictures.animals(Path("pets").resolve())
    damage(root)
    with at_most(2 * MEGABYTE):
        return text_of(
            lambda: [image_folder(root, split, size=(2, 3)) for split in ("train", "test")]
        )


def picture(name, content):
    return pets(lambda root: (root / "cat" / name).write_bytes(content))


def tiny(name, content):
    root = laid_pictures.tiny(Path("tiny-imagenet-200"))
    if content is None:
        (root / name).unlink()
    else:
        (root / name).write_bytes(content)
    return text_of(lambda: [tiny_imagenet(root, each) for each in ("train", "test")])


NAMES = vars(laid_cifar) | vars(laid_idx) | vars(laid_norb) | vars(laid_npz) | vars(laid_pictures)
NAMES |= globals() | {"os": os, "pickle": pickle}


@pytest.mark.parametrize(("call", "words"), cases_of(BROKEN))
def test_what_is_broken_is_told(call, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for said in eval(call, dict(NAMES)).split("\n"):
        assert words in said
