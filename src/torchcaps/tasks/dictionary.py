"""The dictionary of a network: which images share a parse tree, and what these look like together.

The key of an image is the string of quantised couplings of all children of the last layer to its
predicted class [renzulli2025] §3.1.3.
"""

import hashlib
import os
from collections import defaultdict
from dataclasses import asdict, dataclass
from math import log2
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.analysis import ChosenLevels, choose_levels, key_entropy
from torchcaps.analysis.quantise import quantised_index
from torchcaps.analysis.trace import check_parents_are_classes, class_coupling
from torchcaps.data import Images
from torchcaps.errors import TorchcapsError
from torchcaps.models.images import device_of
from torchcaps.tasks.evaluate import evaluate
from torchcaps.tasks.measurements import Levels, in_words, routed_layers, seen_through
from torchcaps.tasks.progress import progress
from torchcaps.tasks.tables import in_columns
from torchcaps.tasks.trained import Trained, check_fit, open_trained

BATCH = 64
# Keys of a class that are listed and drawn, the most frequent ones.
LISTED = 3


@dataclass(frozen=True)
class Entry:
    """One parse tree: the images that share it, by their places in the data set."""

    key: str  # the first digits of its digest
    images: tuple[int, ...]
    right: int  # how many of these are of the class


@dataclass(frozen=True)
class ClassEntries:
    """What was predicted as one class, the most frequent tree first."""

    name: str
    images: int
    entropy: float
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Dictionary:
    """Images grouped by key."""

    data: str
    split: str
    levels: tuple[int, ...]
    chosen: ChosenLevels | None  # where nobody said how many
    images: int
    accuracy: float  # with quantised couplings
    accuracy_before: float
    classes: tuple[ClassEntries, ...]

    @property
    def entropy(self) -> float:
        """Take the mean entropy of the classes, in bits."""
        return sum(each.entropy for each in self.classes) / len(self.classes)

    @property
    def bound(self) -> float:
        """Say what the entropy would be if every image had a tree of its own."""
        return sum(log2(max(1, each.images)) for each in self.classes) / len(self.classes)

    def numbers(self) -> dict[str, Any]:
        """Give everything, as JSON has it."""
        return {**asdict(self), "entropy": self.entropy, "bound": self.bound}

    def text(self) -> str:
        """Say it in lines for people."""
        how = ""
        if self.chosen is not None:
            how = (
                f", the fewest at which validation accuracy holds ({self.chosen.plain:.2%})"
                if self.chosen.holds
                else ", though validation accuracy falls even there"
            )
        accuracies = f"{self.accuracy_before:.2%} → {self.accuracy:.2%} quantised, on "
        bits = f"{self.entropy:.2f} bit, mean of the classes; {self.bound:.2f} if every image had "
        rows = [
            ("levels", f"{in_words(self.levels)}{how}"),
            ("accuracy", f"{accuracies}{self.images} {self.split} images of {self.data}"),
            ("entropy", f"{bits}a tree of its own"),
        ]
        for each in self.classes:
            top = ", ".join(f"{len(entry.images)} {entry.key}" for entry in each.entries[:LISTED])
            trees = "tree" if len(each.entries) == 1 else "trees"
            shown = "image" if each.images == 1 else "images"
            said = f"{len(each.entries)} {trees} of {each.images} {shown}, {each.entropy:.2f} bit"
            rows.append((each.name, said + (f"; most: {top}" if top else "")))
        return "\n".join(in_columns(rows))


def dictionary(
    network: str | os.PathLike[str],
    *,
    levels: Levels | None = None,
    each: bool = False,
    data: str | None = None,
    root: Path | None = None,
    split: str = "test",
    picture: Path | None = None,
) -> Dictionary:
    """Group images by the parse tree that a network makes of them.

    Arguments:
        network: a run folder, or a saved network.
        levels: of the grid for couplings, one number or one for each routed layer; without it the
            fewest at which accuracy holds on the validation images of the run, never on others.
        each: whether layers may be given different numbers, where they are chosen.
        data: data set, where the network is a file.
        root: where the data lies, for data sets that are files.
        split: which images are grouped.
        picture: file for images of the most frequent trees and their overlap: .svg, .pdf, .png.

    >>> print(dictionary(Path("my-run"), levels=11).text())
    """
    if picture is not None:
        from torchcaps.viz import check_figure_file

        check_figure_file(picture)
    trained = open_trained(network)
    images = trained.images(split, data=data, root=root)
    check_fit(trained.model, images)
    names = routed_layers(trained.model, images.image_shape)
    if each and levels is not None:
        raise TorchcapsError(
            f"--each chooses a number of levels for each routed layer, but they are given: "
            f"{in_words(levels)}; leave one of the two out."
        )
    chosen = None
    if levels is None:
        chosen = _choose(trained, len(names), each, data, root)
        levels = chosen.levels if len(set(chosen.levels)) > 1 else chosen.levels[0]
    groups, right = _grouped(trained.model, images, levels)
    found = Dictionary(
        data=images.name,
        split=split,
        levels=(levels,) * len(names) if isinstance(levels, int) else tuple(levels),
        chosen=chosen,
        images=len(images),
        accuracy=float(right.double().mean()),
        accuracy_before=evaluate(trained.model, images, batch_size=BATCH).accuracy,
        classes=tuple(
            _entries(name, groups.get(label, {}), right)
            for label, name in enumerate(images.class_names)
        ),
    )
    if picture is not None:
        _draw(found, images, picture)
    return found


def _choose(
    trained: Trained, layers: int, each: bool, data: str | None, root: Path | None
) -> ChosenLevels:
    recipe = None if trained.run is None else trained.run.recipe
    if recipe is None or not recipe.validation_share or data not in (None, recipe.data):
        raise TorchcapsError(
            f"levels are chosen by the images that a run held out of its own data, and "
            f"{trained.path} has none; say how many there are: --levels 11."
        )
    validation = trained.images("validation", data=data, root=root)

    def accuracy(levels: tuple[int, ...] | None) -> float:
        return evaluate(trained.model, validation, batch_size=BATCH, levels=levels).accuracy

    return choose_levels(accuracy, layers=layers, each=each)


@torch.no_grad()
def _grouped(
    model: nn.Module, images: Images, levels: Levels
) -> tuple[dict[int, dict[str, list[int]]], Tensor]:
    """Find the places of images by predicted class and key, and which of all are right."""
    last = levels if isinstance(levels, int) else levels[-1]
    answer = seen_through(model.eval(), levels=levels, names=["keys"])
    device = device_of(model)
    groups: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    right = []
    with progress("grouping images", len(images)) as advance:
        for index in torch.arange(len(images)).split(BATCH):
            batch = images.batch(index)
            if batch.labels.ndim != 1:
                raise TorchcapsError(
                    f"images are grouped by the one class that is predicted, but those of "
                    f"{images.name} show several; take a set with one object an image."
                )
            out = answer(batch.pixels.to(device))
            check_parents_are_classes(out.trace, out.scores.shape[1])
            predicted = out.scores.argmax(-1).cpu()
            rows = quantised_index(class_coupling(out.trace, predicted), levels=last).cpu().numpy()
            for place, label, row in zip(index.tolist(), predicted.tolist(), rows, strict=True):
                key = hashlib.blake2b(row.tobytes(), digest_size=16).hexdigest()
                groups[label][key].append(place)
            right.append(predicted == batch.labels.cpu())
            advance(len(index))
    return groups, torch.cat(right)


def _entries(name: str, keys: dict[str, list[int]], right: Tensor) -> ClassEntries:
    in_order = sorted(keys.items(), key=lambda item: (-len(item[1]), item[1][0]))
    entries = tuple(
        Entry(key[:8], tuple(places), int(right[places].sum())) for key, places in in_order
    )
    counts = tuple(len(entry.images) for entry in entries)
    return ClassEntries(name, sum(counts), key_entropy(counts), entries)


def _draw(found: Dictionary, images: Images, picture: Path) -> None:
    from torchcaps.viz import TreeImages, draw_dictionary, write_figure

    rows = []
    for each in found.classes:
        for entry in each.entries[:LISTED]:
            places = torch.tensor(entry.images)
            pixels = images.batch(places).pixels.float()
            title = f"{each.name}: {len(places)} of {each.images} images"
            rows.append(TreeImages(title, pixels.mean(0), pixels[:8]))
    write_figure(draw_dictionary(rows), picture)
