"""What every reader and maker returns: labelled images in memory, checked once at the door."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from torchcaps._checks import check_number, check_shape, check_type
from torchcaps.data.batch import Batch, Images, JudgedBy
from torchcaps.data.groups import named_groups
from torchcaps.data.items import Items
from torchcaps.data.part_truth import PartTruth
from torchcaps.data.parting import two_parts
from torchcaps.errors import TorchcapsError, short

# What the images of one set may fill in memory.
MOST_BYTES = 1 << 32
# By how many axes images came with.
MENDED = {
    2: "a sequence is an image of one row: images[:, None, None]",
    3: "grey images need a channel axis: images.unsqueeze(1)",
    5: "the slices of a volume are channels: images.flatten(1, 2)",
}


@dataclass(frozen=True)
class ImageSet(Items):
    """Labelled images: bytes as they came, or floats in [0, 1]. Networks see floats in [0, 1].

    >>> mine = ImageSet("mine", torch.rand(100, 3, 64, 48), torch.arange(100) % 2, ("cat", "dog"))
    """

    name: str
    images: Tensor  # uint8 or float [n, c, h, w]
    labels: Tensor  # int64 [n]
    class_names: tuple[str, ...]
    # Only made data knows which parts are where.
    truth: PartTruth | None = None
    # What else a source tells of each image, by name: smallNORB's viewpoints.
    facts: dict[str, Tensor] = field(default_factory=dict)  # each [n]
    # Where each image was read from, of sets that are a file an image; below the set's folder.
    files: tuple[str, ...] | None = None
    # Which images belong together, such as those of one patient: the name of each one's group.
    groups: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        images, labels, count = self.images, self.labels, len(self.images)
        for what, values in (("images", images), ("labels", labels)):
            so = "data.from_arrays takes arrays and lists"
            check_type(f"{self.name}: {what}", values, Tensor, so, as_a="a tensor")
        if images.ndim != 4 or not images.numel():
            raise TorchcapsError(
                f"{self.name}: images must be [n, channels, height, width] with at least one "
                f"image, but came with shape {list(images.shape)}; "
                f"{MENDED.get(images.ndim, MENDED[3])}."
            )
        if images.dtype != torch.uint8 and not images.is_floating_point():
            raise TorchcapsError(
                f"{self.name}: images must be bytes or floats in [0, 1], but came as "
                f"{images.dtype}."
            )
        if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
            raise TorchcapsError(
                f"{self.name}: labels must be int64 [{count}], one an image, but came as "
                f"{labels.dtype} with shape {list(labels.shape)}."
            )
        for name, fact in self.facts.items():
            check_shape(f"{self.name}: the fact {name!r}", fact, (count,), "every image needs one")
        if self.files is not None and len(self.files) != count:
            raise TorchcapsError(
                f"{self.name}: files must name {count} files, one an image, but came with "
                f"{len(self.files)}."
            )
        if self.groups is not None:
            groups = named_groups(self.name, self.groups, count)
            object.__setattr__(self, "groups", groups)
        names = distinct_names(self.name, self.class_names)
        if wrong := [name for name in self.class_names if not isinstance(name, str)]:
            raise TorchcapsError(
                f"{self.name}: names of classes must be text, but one is {short(wrong[0])}; write "
                f"class_names=tuple(map(str, names))."
            )
        # A list would be unlike the tuple of another set of the same classes.
        object.__setattr__(self, "class_names", names)
        check_labels(self.name, labels, len(names))
        if not images.is_floating_point():
            return
        # NaN fails both comparisons, so it is found by the negation.
        fine = ((images >= 0) & (images <= 1)).flatten(1).all(1)
        if not bool(fine.all()):
            at = int((~fine).nonzero()[0])
            low, high = float(images[at].min()), float(images[at].max())
            raise TorchcapsError(
                f"{self.name}: pixels must be finite and in [0, 1], but image {at} goes from "
                f"{low:g} to {high:g}; divide bytes by 255, and mend NaN where the image was "
                f"prepared."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        channels, height, width = self.image_shape
        return (
            f"{type(self).__name__}({self.name!r}: {len(self)} images of "
            f"{channels}×{height}×{width}, {len(self.class_names)} classes)"
        )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width), as `create_model(image=)` takes it."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    @property
    def judged_by(self) -> JudgedBy:
        """One object an image."""
        return "class"

    def digest(self) -> str:
        """Return twelve characters that change when any pixel, label or group does."""
        seen = hashlib.sha256(f"{self.images.dtype} {tuple(self.images.shape)}".encode())
        for tensor in (self.images, self.labels):
            # As bytes, for NumPy has no bfloat16.
            seen.update(tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes())
        if self.groups is not None:
            seen.update(repr(self.groups).encode("utf-8", "backslashreplace"))
        return seen.hexdigest()[:12]

    def pixels(self, index: Tensor | slice) -> Tensor:
        """Return some images as the floats in [0, 1] that a network takes."""
        chosen = self.images[index]
        return chosen.float() / 255 if chosen.dtype == torch.uint8 else chosen.float()

    def batch(self, index: Tensor | slice, epoch: int = 0) -> Batch:
        """Return some images with their labels, the same in every epoch."""
        return Batch(self.pixels(index), self.labels[index])

    def take(self, index: Tensor) -> Self:
        """Return some of the images, in the order of `index`."""
        return replace(
            self,
            files=_chosen(self.files, index),
            groups=_chosen(self.groups, index),
            images=self.images[index],
            labels=self.labels[index],
            truth=None if self.truth is None else self.truth[index],
            facts={name: fact[index] for name, fact in self.facts.items()},
        )

    def hold_out(self, *, share: float = 0.1, seed: int = 0) -> tuple[Self, Self]:
        """Part off a random share, or whole groups: (the rest, the share)."""
        rest, held = hold_out_of(self, share=share, seed=seed)
        return self.take(rest), self.take(held)

    def to(self, device: torch.device | str) -> Self:
        """Move images and labels to a device; truth and facts stay where they are."""
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))


def _chosen(names: tuple[str, ...] | None, index: Tensor) -> tuple[str, ...] | None:
    if names is None:
        return None
    return tuple(names[at] for at in torch.arange(len(names))[index.cpu()].tolist())


def distinct_names(name: str, class_names: object) -> tuple[str, ...]:
    """Return names of classes as text; refuse those by which classes cannot be told apart."""
    if isinstance(class_names, str | Mapping) or not isinstance(class_names, Iterable):
        raise TorchcapsError(
            f"{name}: class_names must be a list of names, one a class, but came as "
            f"{short(class_names)}."
        )
    # Numbers are names, too: files hold text.
    words = tuple(map(str, class_names))
    if len(set(words)) < len(words):
        twice = next(word for at, word in enumerate(words) if word in words[:at])
        raise TorchcapsError(
            f"{name}: every class needs a name of its own, but {short(twice)} names two of them, "
            f"which would be counted as one; tell them apart in class_names."
        )
    return words


def check_labels(name: str, labels: Tensor, n_classes: int) -> None:
    """Refuse labels that are none of the classes."""
    wrong = ((labels < 0) | (labels >= n_classes)).nonzero()
    if len(wrong):
        at = int(wrong[0])
        raise TorchcapsError(
            f"{name}: labels must be 0 to {n_classes - 1} for {n_classes} classes, but image {at} "
            f"has label {int(labels[at])}; count classes from 0, or name them all."
        )


def hold_out_of(images: Images, *, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Part images at random, or by groups: (the indices of the rest, those of a share)."""
    rest, held = hold_out(len(images), share=share, seed=seed)
    groups, labels = getattr(images, "groups", None), getattr(images, "labels", None)
    if groups is None or labels is None:
        return rest, held
    names = images.class_names
    is_held = torch.from_numpy(
        two_parts(images.name, groups, labels.cpu(), names, share=share, seed=seed, both=False)
    )
    return (~is_held).nonzero()[:, 0], is_held.nonzero()[:, 0]


def hold_out(count: int, *, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Part `count` images at random: (the indices of the rest, those of a share)."""
    check_number("share", share, most=1, so="it is how much of the images is held out")
    held = round(share * count)
    if not 0 < held < count:
        raise TorchcapsError(
            f"share={share} of {count} images leaves nothing to train on or nothing to "
            f"validate with; both need at least one image: take more images, or another share, "
            f"which a recipe calls validation_share."
        )
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return order[held:], order[:held]
