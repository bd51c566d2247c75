"""The network with which a run begins: of its recipe, or the user's own."""

import os
from collections.abc import Collection
from pathlib import Path

import torch
from torch import nn

from torchcaps.data import Images
from torchcaps.data.shown.channels import channel_statistics
from torchcaps.errors import TorchcapsError, short
from torchcaps.layers import with_channels_last
from torchcaps.models import MODELS, create_model, load
from torchcaps.models.files.trunk import FILES, take_trunk, trunk_of
from torchcaps.models.images import device_of, evaluating
from torchcaps.models.own import OWN, OwnNetwork
from torchcaps.train.recipe import Recipe
from torchcaps.train.seeds import WEIGHTS, seed_of


def check_own(recipe: Recipe, model: nn.Module | None) -> None:
    """Say whether the recipe and the call speak of the same network."""
    if (model is None) == (recipe.model == OWN):
        if model is None:
            raise TorchcapsError(
                'the recipe says model "own", but no network was given; give it to fit: '
                "model=module. For the command line, name it by register_model in a file, and add "
                "--import of the file."
            )
        raise TorchcapsError(
            f'a network of your own was given, but the recipe says model "{recipe.model}"; make '
            f'the recipe with model="own", or leave model=module out.'
        )
    if model is None:
        return
    if not isinstance(model, nn.Module):
        raise TorchcapsError(
            f"model takes a module that was made, such as MyNet(), but got {short(model)}."
        )
    idle = {"options": recipe.options, "standardise": recipe.standardise}
    for name, value in idle.items():
        if value:
            raise TorchcapsError(
                f"{name} is of no use with a network of your own, which is made already; leave it "
                f"out."
            )


def check_images_given(own: object) -> None:
    """Refuse what is not two sets of images, such as a torch Dataset of somebody else."""
    if not isinstance(own, tuple | list) or len(own) != 2:
        came = (
            f"{len(own)} of them" if isinstance(own, tuple | list) else f"one {type(own).__name__}"
        )
        raise TorchcapsError(
            f"own takes two sets of images, own=(train, test), but came as {came}."
        )
    for name, images in zip(("training", "test"), own, strict=True):
        if not hasattr(images, "image_shape"):
            raise TorchcapsError(
                f"the {name} images came as {type(images).__name__}, which knows neither their "
                f"size nor their classes; make a set of it first: data.from_dataset(dataset, "
                f"class_names) or data.from_arrays(images, labels, class_names)."
            )


def check_alike(train: Images, test: Images) -> None:
    """Compare images now, not after hours."""
    for what in ("image_shape", "class_names", "judged_by"):
        there, here = getattr(train, what), getattr(test, what)
        if there != here:
            raise TorchcapsError(
                f"training and test images need one {what}, but came with {there} and {here}; are "
                f"they of the same set?"
            )


def check_updates(recipe: Recipe, training: Images) -> None:
    """Refuse to wait for more batches than an epoch has: its end is an update in any case."""
    batches = -(-len(training) // recipe.batch_size)
    if recipe.accumulate > batches:
        have = "is 1 batch" if batches == 1 else f"are {batches} batches"
        raise TorchcapsError(
            f"accumulate={short(recipe.accumulate)} asks for so many batches an update, but there "
            f"{have} of {recipe.batch_size} in an epoch of {len(training)} images; take accumulate="
            f"{batches} or less, or smaller batches."
        )


def initial_model(recipe: Recipe, images: Images, own: nn.Module | None = None) -> nn.Module:
    """Give the network before training: a function of the recipe, and of the images to train on
    where `standardise` measures them; or the user's own as it is, called as ours are."""
    if own is not None:
        network = OwnNetwork(own, image=images.image_shape, n_classes=len(images.class_names))
        _try(network, images)
        return with_channels_last(network) if recipe.channels_last else network
    numbers = channel_statistics(images) if recipe.standardise == "set" else recipe.standardise
    channels = images.image_shape[0]
    if numbers is not None and len(numbers[0]) != channels:
        raise TorchcapsError(
            f"standardise needs a mean and a standard deviation for each channel, but has "
            f"{len(numbers[0])} of them and images of {images.name} have {channels}; do they come "
            f"from a network for other images? standardise=set measures these."
        )
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which seeds the GPUs' generators too, and those are the caller's.
        torch.default_generator.manual_seed(seed_of(recipe.seed, WEIGHTS))
        model = create_model(
            recipe.model,
            image=images.image_shape,
            n_classes=len(images.class_names),
            standardise=numbers,
            **recipe.options,
        )
    return with_channels_last(model) if recipe.channels_last else model


def take_frozen(
    model: nn.Module, file: str | os.PathLike[str] | None, *, has_weights: bool
) -> dict[str, str]:
    """Give a frozen trunk its weights, and say which, for the record of a run."""
    if file is not None:
        return {"trunk": take_trunk(model, file)}
    trunk = trunk_of(model)
    if trunk is None or has_weights:
        return {}
    raise TorchcapsError(
        f"the trunk {trunk.kind} is not trained, so it needs weights that were trained before: "
        f"fit(trunk=FILE), on the command line --trunk FILE, {FILES[trunk.kind]}."
    )


def check_backbone(recipe: Recipe, *, begins: bool) -> None:
    """Refuse a backbone that would stay as it was drawn."""
    preset = MODELS.get(recipe.model)
    options = {} if preset is None else preset.options | recipe.options
    is_random = options.get("weights") == "random" and not begins
    if is_random and "backbone" in recipe.freeze:
        raise TorchcapsError(
            f"freeze=backbone would leave {options['backbone']} with the random weights that it "
            f"begins with; give it trained ones: weights=pretrained, or a file, on the command "
            f"line --option weights=FILE."
        )


def is_without(model: nn.Module, made_new: Collection[str]) -> bool:
    """Say whether any weight of its frozen trunk was made new, by the names of all that were."""
    trunk = trunk_of(model)
    if trunk is None:
        return False
    name = next(name for name, module in model.named_modules() if module is trunk)
    return any(each.startswith(f"{name}.") for each in made_new)


def take_weights(model: nn.Module, file: Path) -> None:
    if isinstance(model, OwnNetwork):
        training = model.training
        load(file, model=model.module)
        model.train(training)
    else:
        model.load_state_dict(load(file).state_dict())


def named_class(model: nn.Module) -> dict[str, str]:
    """Give the class of a network that has no name, for the record of a run."""
    return {"class": str(model.config["class"])} if isinstance(model, OwnNetwork) else {}


@torch.no_grad()
def _try(network: OwnNetwork, images: Images) -> None:
    """Try two images before anything is written down: what cannot be used is said now."""
    pixels = images.batch(slice(0, 2)).pixels.to(device_of(network))
    try:
        with evaluating(network):
            network(pixels)
    except (RuntimeError, TypeError) as error:
        raise TorchcapsError(
            f"{type(network.module).__name__} does not take images of (channels, height, width) = "
            f"{images.image_shape} ({str(error).splitlines()[0][:150]}); was it made for others?"
        ) from None
