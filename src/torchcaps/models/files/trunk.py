"""The weights of a frozen trunk, out of a file."""

import os

from torch import nn

from torchcaps._paths import path_of
from torchcaps.errors import TorchcapsError
from torchcaps.layers.trunk import FrozenTrunk, TrunkKind
from torchcaps.models.pretrained import published, read_weights, take

# What the file of a kind has to be, in words.
FILES: dict[TrunkKind, str] = {
    "resnet18": "a network resnet18 that torchcaps saved, as model.safetensors in a run folder",
    "resnet18_imagenet": "weights of ResNet-18 for ImageNet by the names that public code gives "
    "them, conv1.weight, layer1.0.conv1.weight and so on",
}


def trunk_of(network: nn.Module) -> FrozenTrunk | None:
    """Give the frozen trunk of a network that has one."""
    return next((each for each in network.modules() if isinstance(each, FrozenTrunk)), None)


def take_trunk(network: nn.Module, path: str | os.PathLike[str]) -> str:
    """Give the frozen trunk of a network the weights of a file; twelve characters that tell them.

    Arguments:
        network: made with a `trunk`, as `create_model("rem_dr", trunk="resnet18")`.
        path: of safetensors, or what torch.save made of a state_dict. For trunk "resnet18" it is a
            network resnet18 that torchcaps saved, for "resnet18_imagenet" ResNet-18 for ImageNet by
            the names of public code.

    >>> take_trunk(create_model("rem_dr", trunk="resnet18"), "mine.safetensors")  # doctest: +SKIP
    """
    trunk, path = trunk_of(network), path_of("path", path)
    if trunk is None:
        raise TorchcapsError(
            f"this network has no frozen trunk to give the weights of {path} to; make it with one, "
            f'as create_model("rem_dr", trunk="resnet18").'
        )
    if not path.is_file():
        raise TorchcapsError(f"there is no file {path}; it must be {FILES[trunk.kind]}.")
    is_saved = trunk.kind == "resnet18"
    theirs = {
        name: f"features.0.{name}" if is_saved else published(name)
        for name in trunk.maps.state_dict()
    }
    must = f"{FILES[trunk.kind]}, for images of as many channels"
    return take(trunk.maps, read_weights(path), theirs, f"the trunk {trunk.kind}", path, must)
