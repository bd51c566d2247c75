"""The networks and images that the explorer was given. Nothing else is ever read."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps._zoo import PREFIX, zoo_images, zoo_names
from torchcaps.data import Images, from_npz, sample_of
from torchcaps.data.part_truth import PartTruth
from torchcaps.data.registry import PUBLISHED, Root
from torchcaps.errors import TorchcapsError
from torchcaps.layers import use_backend
from torchcaps.models.iterating import routed_so_often
from torchcaps.tasks.trained import Trained, check_fit, evenly_routed, label_of, open_trained
from torchcaps.types import Trace

# Images of a collection: a screen full.
IMAGES = 64


@dataclass(frozen=True)
class Collection:
    """Some test images of a set, drawn at random, every class with its share."""

    name: str
    pixels: Tensor  # [n, c, h, w]
    labels: tuple[str, ...]  # what each shows, in words
    truth: PartTruth | None


@dataclass(frozen=True)
class Network:
    """A network that can be asked for its trace."""

    label: str
    model: nn.Module
    image: tuple[int, int, int]
    classes: tuple[str, ...]
    trace: Trace  # of an empty image: names and sizes of the layers
    iterations: int | None  # None where it routes in one pass
    even: tuple[str, ...]  # layers that were trained with even couplings
    collection: int | None
    note: str  # whose the images are; or why there are none, and what would bring some


@dataclass(frozen=True)
class Opened:
    networks: tuple[Network, ...]
    collections: tuple[Collection, ...]


def opened(
    names: Sequence[str | Path], *, data: str | None = None, root: Root | None = None
) -> Opened:
    """Open runs, saved networks and "zoo:NAME", and draw images of their data or of `data`."""
    networks: list[Network] = []
    collections: dict[str, Collection] = {}
    kept: dict[str, Images] = {}
    for name in names:
        trained = open_trained(name)
        label = label_of(name, [each.label for each in networks])
        images, note = _images(trained, data, root, kept)
        number = None
        if images is not None:
            key = f"{images.name} {images.digest()}"
            collections.setdefault(key, _collection(images))
            number = list(collections).index(key)
        known = trained.class_names or (images.class_names if images is not None else None)
        networks.append(_network(label, trained, known, number, note))
    if data is not None and not collections:
        raise TorchcapsError(f"no network that was named takes the images of {data}. {note}")
    return Opened(tuple(networks), tuple(collections.values()))


def of_the_zoo() -> list[str]:
    """Name the networks that come with torchcaps, first those whose images are made."""
    names = sorted(zoo_names(), key=lambda name: "part-whole" not in name)
    return [PREFIX + name for name in names]


def _images(
    trained: Trained, data: str | None, root: Root | None, kept: dict[str, Images]
) -> tuple[Images | None, str]:
    """Find test images, and whose they are, or why not; networks without a run share them."""
    terms = None
    try:
        source = trained.source(data, split="test")
        terms = PUBLISHED[source].terms if source in PUBLISHED else None
        key = str(trained.path) if trained.run else source
        if key not in kept:
            kept[key] = _test_images(trained, source, data, root)
        images = kept[key]
        check_fit(trained.model, images)
    except TorchcapsError as error:
        if terms is None or root is not None:
            return None, f"Draw an image, or drop a picture. Test images are not here: {error}"
        return None, (
            f"No images of {source} come with torchcaps ({terms}): draw one, or drop a picture. "
            f"Started with --data {source} --root FOLDER, this page shows {IMAGES} of them."
        )
    return images, "" if terms is None else f"Licence: {terms}."


def _test_images(trained: Trained, source: str, data: str | None, root: Root | None) -> Images:
    """Find test images of a data set, or the few that come with torchcaps."""
    try:
        return trained.images("test", data=data, root=root)
    except TorchcapsError:
        if root is not None or (few := zoo_images(source)) is None:
            raise
        return from_npz(few, trained.class_names)


def _collection(images: Images) -> Collection:
    index = sample_of(images, min(IMAGES, len(images)))
    batch, names = images.batch(index), images.class_names
    labels = batch.labels.reshape(len(index), -1).tolist()
    truth = getattr(images, "truth", None)
    return Collection(
        images.name,
        batch.pixels.float(),
        tuple(" and ".join(names[k] for k in each) for each in labels),
        truth[index] if isinstance(truth, PartTruth) else None,
    )


def _network(
    label: str, trained: Trained, names: tuple[str, ...] | None, collection: int | None, note: str
) -> Network:
    # Plain operators start at once; the fast ones would first load a compiler, for one image.
    model = trained.model.eval()
    use_backend(model, "plain")
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with torch.no_grad():
        out = model(torch.zeros(1, *trained.image, device=trained.device), keep="last")
    if not out.trace:
        raise TorchcapsError(
            f"{label} has no capsules, so there is no tree to look at; name a capsule network."
        )
    n_classes = out.scores.shape[1]
    if names is None or len(names) != n_classes:
        names = tuple(map(str, range(n_classes)))
    often, even = _iterations(model), evenly_routed(model)
    return Network(label, model, trained.image, names, out.trace, often, even, collection, note)


def _iterations(model: nn.Module) -> int | None:
    """Say how often its routing iterates; None where it passes once."""
    given = getattr(model, "module", model)
    found: list[Any] = [getattr(each, "iterations", None) for each in given.modules()]
    try:
        with routed_so_often(given, 2):
            return max(each for each in found if isinstance(each, int))
    except TorchcapsError:
        return None
