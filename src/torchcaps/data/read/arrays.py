"""Images that are arrays already, in memory or in an .npz file."""

import math
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from torchcaps._paths import path_of
from torchcaps.data.image_set import MOST_BYTES, ImageSet, check_labels, distinct_names
from torchcaps.errors import TorchcapsError

# Of the header of an array; those of images and labels have a hundred characters.
MOST_HEADER = 10_000
# Beyond so many, a last axis holds columns, not channels.
MOST_CHANNELS = 4


def from_arrays(
    images: ArrayLike | Tensor,
    labels: ArrayLike | Tensor,
    class_names: Sequence[str] | None = None,
    *,
    name: str = "arrays",
    groups: Sequence[object] | None = None,
) -> ImageSet:
    """Make labelled images out of arrays or tensors, which are copied: who writes into theirs later
    changes neither the set nor its digest. `ImageSet` takes tensors as they are, where memory is
    short.

    Arguments:
        images: bytes 0 to 255, or floats in [0, 1]: [n, h, w], [n, channels, h, w], or with up to
            four channels last, [n, h, w, channels].
        labels: whole numbers from 0, one an image.
        class_names: by default the numbers themselves.
        name: what the set is called in sentences.
        groups: one an image, names or numbers, alike for images that belong together, as those of
            one patient do. `hold_out` and `folds` never part a group.

    >>> from_arrays(torch.rand(6, 5, 4, 3), [0, 1, 2, 0, 1, 2]).image_shape
    (3, 5, 4)
    """
    return as_image_set(images, labels, class_names, name=name, copied=True, groups=groups)


def as_image_set(
    images: ArrayLike | Tensor,
    labels: ArrayLike | Tensor,
    class_names: Sequence[str] | None,
    *,
    name: str,
    copied: bool = False,
    groups: Any = None,
) -> ImageSet:
    """Make labelled images as `from_arrays` does; tensors that nobody else holds need no copy."""
    pixels, answers = tensor_of(images, "images", name), tensor_of(labels, "labels", name)
    if pixels.ndim == 3:
        pixels = pixels.unsqueeze(1)
    elif pixels.ndim == 4 and pixels.shape[3] <= MOST_CHANNELS < pixels.shape[1]:
        pixels = pixels.permute(0, 3, 1, 2).contiguous()
    elif pixels.ndim == 4 and MOST_CHANNELS < pixels.shape[1] == pixels.shape[2] < pixels.shape[3]:
        raise TorchcapsError(
            f"{name}: images came with shape {list(pixels.shape)}, which looks like channels last; "
            f"give more than {MOST_CHANNELS} channels first, images.transpose(0, 3, 1, 2), or, if "
            f"they are first, a tensor to ImageSet, which takes it as it is."
        )
    if pixels.dtype == torch.float64:
        pixels = pixels.float()
    answers, names = _labelled(answers, class_names, name)
    if copied:
        pixels, answers = _apart(pixels, images), _apart(answers, labels)
    return ImageSet(name, pixels, answers, names, groups=groups)


def _apart(tensor: Tensor, given: ArrayLike | Tensor) -> Tensor:
    """Copy a tensor that shares its memory with what was given."""
    if not isinstance(given, Tensor):
        return tensor
    is_shared = tensor.untyped_storage().data_ptr() == given.untyped_storage().data_ptr()
    return tensor.clone() if is_shared else tensor


def _labelled(
    answers: Tensor, class_names: Sequence[str] | None, name: str
) -> tuple[Tensor, tuple[str, ...]]:
    """Return labels as whole numbers [n], and the names of their classes."""
    if answers.ndim == 2 and answers.shape[1] == 1:
        answers = answers[:, 0]
    if answers.is_floating_point() or answers.is_complex() or answers.dtype == torch.bool:
        raise TorchcapsError(
            f"{name}: labels must be whole numbers from 0, but came as {answers.dtype}; convert "
            f"them: labels.astype('int64')."
        )
    answers = answers.long()
    if class_names is None:
        most = int(answers.max()) if answers.numel() else 0
        if not 1 <= most < 1_000_000:
            raise TorchcapsError(
                f"{name}: labels must count two or more classes from 0, but the largest is {most}; "
                f"give class_names when there are more classes than these images show."
            )
        if answers.unique().tolist() == list(range(1, most + 1)) and most > 1:
            raise TorchcapsError(
                f"{name}: labels must count classes from 0, but these are 1 to {most}; if they "
                f"count from 1, give labels - 1, and if no image is of class 0, give class_names."
            )
        class_names = [str(label) for label in range(most + 1)]
    words = distinct_names(name, class_names)
    if len(words) < 2:
        raise TorchcapsError(
            f"{name}: there must be two or more classes, but class_names holds {list(words)}."
        )
    return answers, words


def from_npz(
    path: str | os.PathLike[str],
    class_names: Sequence[str] | None = None,
    *,
    images: str = "images",
    labels: str = "labels",
    groups: str | None = None,
) -> ImageSet:
    """Read the two arrays of these names in an .npz file, as in `from_arrays`; nothing is
    unpickled.

    Arguments:
        path: the .npz file.
        class_names: by default the numbers themselves.
        images: the name of the array of images.
        labels: the name of the array of labels.
        groups: the name of an array that tells for each image to which group it belongs.

    >>> from_npz("mine.npz", ("cat", "dog"))  # doctest: +SKIP
    """
    path = path_of("path", path)
    if not path.is_file():
        raise TorchcapsError(f"there is no file {path}; is the path right?")
    try:
        with zipfile.ZipFile(path) as archive:
            for array in (images, labels, *(() if groups is None else (groups,))):
                if f"{array}.npy" not in archive.namelist():
                    known = ", ".join(
                        repr(each.removesuffix(".npy")) for each in archive.namelist()[:12]
                    )
                    raise TorchcapsError(
                        f"{path} holds no array {array!r} but {known or 'nothing'}; name them: "
                        f"images=, labels=, groups=."
                    )
            members = (f"{images}.npy", f"{labels}.npy")
            # Both headers before any value: an archive of some megabytes may unpack to gigabytes.
            (shape, taken), (of_labels, _) = (_sizes_of(archive, each, path) for each in members)
            _check_alike(path, shape, of_labels)
            _check_room(path, taken, math.prod(of_labels))
            # Labels before images, which take the memory: wrong ones are told without.
            answers, names = _labelled(_values(archive, members[1]), class_names, path.stem)
            check_labels(path.stem, answers, len(names))
            named = None if groups is None else _groups(archive, groups, path, len(answers))
            values = _values(archive, members[0])
    except TorchcapsError:
        raise
    except Exception as error:
        # A damaged archive makes zipfile and numpy raise errors of many kinds.
        why = str(error).replace("\n", " ")
        raise TorchcapsError(
            f"{path} could not be read as an .npz file ({why}); it is cut short, damaged or of "
            f"another format: save it again by numpy.savez."
        ) from None
    return as_image_set(values, answers, names, name=path.stem, groups=named)


def _sizes_of(archive: zipfile.ZipFile, member: str, path: Path) -> tuple[tuple[int, ...], int]:
    """Return an array's shape, which its header states rightly, and the memory that it takes."""
    size = archive.getinfo(member).file_size
    with archive.open(member) as file:
        shape, is_fortran, dtype = _header(file)
        held = size - file.tell()
    if dtype.hasobject:
        raise TorchcapsError(
            f"{path} holds {member} as Python objects, which only a pickle can carry; nothing of "
            f"it was run: save it as numbers or text."
        )
    # The archive gives no more bytes than it states, so this bounds the memory.
    if math.prod(shape) * dtype.itemsize != held or held > MOST_BYTES:
        raise TorchcapsError(
            f"{path} claims {' × '.join(map(str, shape))} values of {dtype} in {member}, but has "
            f"{held} bytes for them (at most {MOST_BYTES} are read); it is damaged."
        )
    # `_values` copies what does not lie as torch has it.
    return shape, size + (held if is_fortran or not dtype.isnative else 0)


def _check_alike(path: Path, images: tuple[int, ...], labels: tuple[int, ...]) -> None:
    """Refuse what cannot be images with one label each, by its shapes alone."""
    if len(images) not in (3, 4) or math.prod(labels) != images[0]:
        raise TorchcapsError(
            f"{path}: images must be [n, height, width] or [n, channels, height, width], with n "
            f"labels, but came as {list(images)} with labels {list(labels)}; are the two arrays "
            f"the right ones?"
        )


def _check_room(path: Path, of_images: int, labels: int) -> None:
    """Refuse what fills more than a set may once it is read: every label becomes eight bytes."""
    if of_images + 8 * labels > MOST_BYTES:
        raise TorchcapsError(
            f"{path} holds {labels} images with labels, which take {of_images + 8 * labels} bytes "
            f"of memory, where a set may take {MOST_BYTES}; split it."
        )


def _groups(archive: zipfile.ZipFile, array: str, path: Path, count: int) -> object:
    """Read text or numbers, which become names."""
    shape, _ = _sizes_of(archive, f"{array}.npy", path)
    if shape != (count,):
        raise TorchcapsError(
            f"{path}: groups must name a group for each of {count} images, [{count}], but "
            f"{array!r} has shape {list(shape)}."
        )
    return _read(archive, f"{array}.npy").tolist()


def _read(archive: zipfile.ZipFile, member: str) -> NDArray[np.generic]:
    with archive.open(member) as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def _values(archive: zipfile.ZipFile, member: str) -> Tensor:
    read = _read(archive, member)
    # Read anew, so that it is nobody else's: no copy is needed but for torch's sake.
    return torch.from_numpy(np.require(read, read.dtype.newbyteorder("="), ("C", "W")))


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"version {version} of its arrays is unknown")
    # NumPy would take memory for as many characters as a header of version 2 claims to have.
    start, size = file.tell(), 2 if version == (1, 0) else 4
    length = int.from_bytes(file.read(size), "little")
    if length > MOST_HEADER:
        raise ValueError(f"its header claims {length:,} characters")
    file.seek(start)
    return read(file)


def tensor_of(values: ArrayLike | Tensor, what: str, name: str) -> Tensor:
    """Make numbers of any kind that torch knows a tensor."""
    if isinstance(values, Tensor):
        if values.is_meta or values.is_nested or values.layout != torch.strided:
            other = "nested, of several sizes" if values.is_nested else "sparse"
            kind = "on the meta device" if values.is_meta else other
            raise TorchcapsError(
                f"{name}: {what} must hold every number, but came as a tensor that is {kind}."
            )
        return values.detach()
    try:
        array = np.asarray(values)
    except ValueError:
        raise TorchcapsError(
            f"{name}: {what} must all have the same shape; bring them to one size first."
        ) from None
    if array.dtype.kind not in "buif" or array.dtype.itemsize > 8:
        raise TorchcapsError(
            f"{name}: {what} must be numbers, but came as {array.dtype}; convert them first."
        )
    # Torch reads neither the other byte order nor arrays that run backwards.
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
