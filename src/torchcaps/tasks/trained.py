"""A network that somebody names: a run folder, or a file that `save` wrote."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from torchcaps._checks import check_choice
from torchcaps._paths import path_of
from torchcaps._zoo import PREFIX, zoo_card
from torchcaps.data import Images, load
from torchcaps.data.read.grouping import Suggested, told_of_folder
from torchcaps.data.registry import PICTURES, Root
from torchcaps.data.shown.crop import windows
from torchcaps.errors import TorchcapsError, short
from torchcaps.layers import UniformRouting, with_channels_last
from torchcaps.models.files.hub import located
from torchcaps.models.files.saving import load_network
from torchcaps.models.images import device_of
from torchcaps.train.folder.objects import read_objects
from torchcaps.train.folder.run import Run
from torchcaps.train.images import parted
from torchcaps.types import ScoresAre

# A network of one's own, where a file or a run holds its weights.
Own = nn.Module | type[nn.Module] | None
SPLITS = ("test", "validation", "train")

MEANING: dict[ScoresAre, str] = {
    "lengths": "lengths of class capsules: each says how likely its class is there, by itself; "
    "they are no softmax and need not sum to one",
    "logits": "logits: only their differences mean something, and a softmax makes them "
    "probabilities that sum to one",
    "independent_logits": "logits of each class by itself: a sigmoid makes each a probability, and "
    "these need not sum to one",
}


@dataclass(frozen=True)
class Trained:
    """A network, ready to look at images, and its run where it has one."""

    model: nn.Module
    path: Path
    run: Run | None
    # Of when the weights of a run are that was stopped: "after epoch 2 of 3".
    stopped: str | None = None

    @property
    def kept(self) -> str | None:
        """Say of which epoch the weights are, where those of the best were kept."""
        return None if self.run is None or self.stopped is not None else self.run.kept

    @property
    def device(self) -> torch.device:
        return device_of(self.model)

    @property
    def image(self) -> tuple[int, int, int]:
        """Give (channels, height, width)"""
        config = self.model.config
        assert isinstance(config, dict)
        if config["image"] is None:
            raise TorchcapsError(
                f"{self.path} does not say what images its network takes, because nobody did when "
                f"it was saved; give the module an attribute image=(channels, height, width) and "
                f"save it again."
            )
        channels, height, width = config["image"]
        return channels, height, width

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Read what a run wrote down of its data, or the card of one of the zoo."""
        known = self.run.result() if self.run else zoo_card(self.path)
        names = known.get("class_names")
        return None if names is None else tuple(names)

    def images(self, split: str, *, data: str | None = None, root: Root | None = None) -> Images:
        """Choose images to show to the network: of its own data, or of those named."""
        check_choice("split", split, SPLITS)
        own = self.run.recipe.data if self.run else None
        source = data or own
        part: Literal["train", "test"] = "test" if split == "test" else "train"
        images = self.images_now(part, data=data, root=root)
        if not self.knows(images, part):
            self._check_names(images)
        if split == "test":
            return images
        if self.run is None or source != own:
            if split == "train":
                return images
            raise TorchcapsError(
                f"only a run knows which images of its own data it held out for validation, but "
                f"{self.path} is no run on {source}; name a run folder, or take --split test."
            )
        if not self.knows(images, "train"):
            raise TorchcapsError(
                f"{self.path} was trained on other images of {source} than there are now, so which "
                f"were held out is not known; put them back as they were, or take --split test."
            )
        recipe = self.run.recipe
        trained_on, held = parted(recipe, images)
        if split == "train":
            return trained_on
        if held is None:
            raise TorchcapsError(
                f"{self.path} held no validation images out, as its recipe says "
                f"(validation_share = 0); take --split test."
            )
        return held

    def source(self, data: str | None = None, *, split: str = "train") -> str:
        """Name the data set that is meant; a run may be tested on another one than trained on."""
        if data is not None:
            return data
        if self.run is None:
            if card := zoo_card(self.path):
                return str(card["data"])
            raise TorchcapsError(
                f"{self.path} is a saved network, which does not know its data; name it with "
                f"--data."
            )
        recipe = self.run.recipe
        return recipe.data if split != "test" else recipe.test_data or recipe.data

    def images_now(
        self, split: Literal["train", "test"], *, data: str | None = None, root: Root | None = None
    ) -> Images:
        """Load a whole split as it is now, with nothing held out."""
        source = self.source(data, split=split)
        is_own = self.run is not None and source == self.source(split=split)
        root = self._root(source, split, root)
        size, crop = self.run.shown if self.run else (None, None)
        if size is None and crop is None and source in PICTURES:
            # They come in any size, and the network takes one.
            size = self.image[1:]
        groups, fold = self.run.parted if self.run and source == "folder" else (None, None)
        try:
            images = load(source, split=split, root=root, size=size, groups=groups, fold=fold)
        except TorchcapsError as error:
            if self.run is None or is_own or root is None or root != self.run.root:
                raise
            raise TorchcapsError(
                f"{source} is looked for where the data of {self.path} are, since no root is "
                f"named (--root FOLDER on the command line, root= in Python): {error}"
            ) from None
        return windows(images, size=size, crop=crop)

    def _root(self, source: str, split: str, root: Root | None) -> Root | None:
        """Say where a data set lies: as named, or where that of the run does."""
        if self.run is None:
            return root
        if source == self.source(split=split):
            return self.run.root_or(root)
        return root or self.run.root

    def told_of_groups(
        self, *, data: str | None = None, root: Root | None = None
    ) -> tuple[str | None, Suggested | None]:
        """Say how groups of a folder's pictures are parted, or those that names suggest."""
        source = self.source(data, split="test")
        home = self._root(source, "test", root)
        if source != "folder" or home is None or self.source(data) != source:
            return None, None
        return told_of_folder(home, *(self.run.parted if self.run else (None, None)))

    def _check_names(self, images: Images) -> None:
        """Refuse other classes than the run was trained on, as many of them as there may be."""
        names = None if self.stopped is not None else self.class_names
        if names is None or len(names) != len(images.class_names):
            return
        for number, (known, name) in enumerate(zip(names, images.class_names, strict=True)):
            if known != name:
                raise TorchcapsError(
                    f"{self.path} knows class {number} as {short(known)}, but of {images.name} "
                    f"that is {short(name)}, and what is right goes by the number; give the "
                    f"classes the same names, or name {self.path / 'model.safetensors'}, which "
                    f"knows no names."
                )

    def knows(self, images: Images, split: Literal["train", "test"]) -> bool:
        """Say whether these are the images that the run had, as far as it wrote them down."""
        if self.run is None:
            digests: dict[str, str] = {}
        elif self.stopped is None:
            digests = self.run.result().get("digests", {})
        else:
            (about,) = read_objects(self.run.environment_file, words=("training_images",))
            digests = {"train": about["training_images"]}
        return split not in digests or bool(digests[split] == images.digest())


def open_trained(path: str | os.PathLike[str], *, model: Own = None) -> Trained:
    """Open the network of a finished run, or of a file, on the accelerator where there is one.

    model: the class of a network of one's own, or a module of it.
    """
    path = path_of("path", located(path))
    if not path.exists():
        raise TorchcapsError(f"there is no run folder and no saved network at {path}.")
    run = Run(path) if path.is_dir() else None
    if run is not None:
        check_is_run(path)
    if run is not None and not run.is_done:
        missing = next(file for file in (run.result_file, run.model_file) if not file.is_file())
        raise TorchcapsError(
            f"{path} holds no finished run ({missing.name} is missing); finish it with the "
            f"command that began it, which its environment.json holds. torchcaps eval and doctor "
            f"take it as it is."
        )
    if run is not None:
        run.check_imported()
    network = load_network(path if run is None else run.model_file, model=model)
    if run is not None and run.is_channels_last:
        with_channels_last(network)
    return Trained(to_accelerator(network), path, run)


def label_of(given: str | os.PathLike[str], taken: Sequence[str]) -> str:
    """Give a short name to a network; where another one has it, all that was named."""
    name = str(given).removeprefix(PREFIX)
    if name == str(given):
        name = Path(given).resolve().name.removesuffix(".safetensors")
    return name if name not in taken else str(given)


def to_accelerator(network: nn.Module) -> nn.Module:
    return network.to("cuda" if torch.cuda.is_available() else "cpu")


def evenly_routed(model: nn.Module) -> tuple[str, ...]:
    """Name the layers whose routing makes even couplings by itself."""
    layers = getattr(model, "layers", None)
    named = layers.items() if isinstance(layers, nn.ModuleDict) else ()
    return tuple(k for k, x in named if isinstance(getattr(x, "routing", None), UniformRouting))


def check_fit(model: nn.Module, images: Images) -> None:
    expected = getattr(model, "image", images.image_shape)
    if tuple(expected) != images.image_shape:
        raise TorchcapsError(
            f"the network takes images of (channels, height, width) = {tuple(expected)}, but "
            f"{images.name} has {images.image_shape}; show it the data it was trained on."
        )
    config = getattr(model, "config", None)
    if isinstance(config, dict) and config["n_classes"] is not None:
        check_classes(config["n_classes"], images)


def check_classes(known: int, images: Images) -> None:
    if known != len(images.class_names):
        raise TorchcapsError(
            f"the network tells {known} classes apart, but {images.name} has "
            f"{len(images.class_names)}; show it the data it was trained on."
        )


def check_image(name: str, number: int, images: Images) -> None:
    if not 0 <= number < len(images):
        raise TorchcapsError(
            f"{name} must be one of the {len(images)} images, 0 to {len(images) - 1}, but is "
            f"{number}."
        )


def check_is_run(folder: Path) -> None:
    """Refuse a folder without a recipe; of one that holds runs, say so and name one of them."""
    if Run(folder).recipe_file.is_file():
        return
    inside = [each for each in sorted(folder.iterdir()) if Run(each).recipe_file.is_file()]
    if inside:
        raise TorchcapsError(
            f"{folder} is no run, but a folder of {len(inside)}; name one of them, as {inside[0]}."
        )
    raise TorchcapsError(
        f"{folder} holds no run (recipe.json is missing); name the folder that was given as --out."
    )
