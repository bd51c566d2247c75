"""Files of every format, damaged at random: a set or one sentence, and little memory."""

from functools import partial

import numpy as np
import pytest
from PIL import Image

import laid_idx
import laid_norb
from damage import assert_survives
from laid_cifar import PICTURE, archive, binary_ten, member
from torchcaps.data import cifar10, from_npz, image_folder, mnist, smallnorb


def of_mnist(root, name):
    return laid_idx.folder(root) / name, lambda: mnist(root, "train")


def of_norb(root, kind, packed):
    path = laid_norb.folder(root, packed=packed) / f"{laid_norb.TRAIN}-{kind}.mat"
    return path.with_name(f"{path.name}{'.gz' * packed}"), lambda: smallnorb(root, "train")


def of_cifar(root, name):
    return binary_ten(root) / name, lambda: cifar10(root, "test")


def of_tar(root, name):
    record = member("cifar-10-batches-bin/test_batch.bin", b"\x03" + PICTURE)
    path = archive(root / name, record)
    return path, lambda: cifar10(path, "test")


def of_npz(root, save):
    path = root / "a.npz"
    save(path, images=np.arange(24, dtype=np.uint8).reshape(2, 3, 4), labels=[1, 0])
    return path, lambda: from_npz(path)


def of_pictures(root, kind):
    noise = np.random.default_rng(0).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    for name in ("cat", "dog"):
        (root / "train" / name).mkdir(parents=True)
        Image.fromarray(noise).save(root / "train" / name / f"1.{kind}")
    return root / "train" / "cat" / f"1.{kind}", lambda: image_folder(root, size=(4, 4))


FORMATS = {
    "idx images": partial(of_mnist, name="train-images-idx3-ubyte"),
    "idx labels.gz": partial(of_mnist, name="train-labels-idx1-ubyte.gz"),
    **{
        f"norb {kind}{'.gz' * packed}": partial(of_norb, kind=kind, packed=packed)
        for kind in ("dat", "cat", "info")
        for packed in (False, True)
    },
    "cifar binary": partial(of_cifar, name="test_batch.bin"),
    "cifar tar": partial(of_tar, name="a.tar"),
    "cifar tar.gz": partial(of_tar, name="a.tar.gz"),
    "npz": partial(of_npz, save=np.savez),
    "npz packed": partial(of_npz, save=np.savez_compressed),
    **{
        kind: partial(of_pictures, kind=kind)
        for kind in ("png", "jpg", "bmp", "webp", "tif", "ppm")
    },
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", FORMATS)
def test_any_damage_is_a_sentence_or_a_set(tmp_path, name):
    path, read = FORMATS[name](tmp_path)
    assert_survives(path, read, times=60 if path.parent.name == "cat" else 200)
